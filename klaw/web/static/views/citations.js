// What an answer was given from knowledge bases: its marks [n] open their passages.

import { get, h, openDialog, t } from "../forms.js";
import { addressOf, originalOf, placeOf } from "./knowledge/reader.js";

/** Make the marks of a rendered answer buttons, and list what they mean below it. `used`: `context_used` of the answer. */
export function cite(row, text, { passages: used }) {
  const given = new Map(used.map((each) => [each.number, each]));
  mark(text, given);
  row.querySelector(".sources")?.remove();
  const cited = used.filter((each) => each.cited);
  if (cited.length) text.after(h("ol.sources", cited.map((each) => h("li", { value: each.number },
    h("button.quiet", () => show(each), each.name), placeOf(each)))));
}

/** Put buttons in place of the marks; those in code stay as they are. */
function mark(text, given) {
  const walker = document.createTreeWalker(text, NodeFilter.SHOW_TEXT, (node) => (node.parentElement.closest("code, pre, a, button") ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT));
  const nodes = [];
  while (walker.nextNode()) if (/\[\d+\]/.test(walker.currentNode.data)) nodes.push(walker.currentNode);
  for (const node of nodes) {
    node.replaceWith(...node.data.split(/(\[\d+\])/).map((part) => {
      const each = given.get(Number((/^\[(\d+)\]$/.exec(part) || [])[1]));
      return each ? h("button.cite", { title: each.name, "aria-label": `${t("Source")} ${each.number}: ${each.name}`, onclick: () => show(each) }, String(each.number)) : part;
    }));
  }
}

/** What a mark refers to, as the document has it now. */
const show = (each) => openDialog(`[${each.number}] ${each.name}`, async (dialog) => {
  const { passages } = each.text || !each.document ? { passages: [each] } : await get(`/kb/documents/${each.document}`, { start: each.start, end: each.end, around: 0 });
  dialog.show(h("p", placeOf(each)), h("p.quote", passages.map(({ text }) => text || "").join("\n")), each.iri && h("p.hint", each.iri),
    each.document && h("div.buttons", h("a.button", { href: addressOf(each.base, each), onclick: dialog.close }, t("Read on")),
      h("a.button", { href: originalOf(each.document, each.first_page), target: "_blank", rel: "noopener" }, t("Open the file"))));
});
