// The text of a document, passage by passage, around what is cited.

import { backTo, get, h, inLine, number, t } from "../../page.js";

const AROUND = 10;

export const addressOf = (base, { document, start, end }) =>
  `#/knowledge/${encodeURIComponent(base)}/${document}/${start ?? 0}-${end ?? 0}`;

/** The original of a document; a PDF opens at the page. */
export const originalOf = (document, page) => `/api/v1/kb/documents/${document}/file${page ? `#page=${page}` : ""}`;

export function passageLine(base, each, opened = () => null) {
  return h("li", h("p", h("a", { href: addressOf(base, each), onclick: opened }, each.name), placeOf(each)),
    each.text && h("p.quote.clamp", each.text));
}

/** Page and heading of a passage, and which other documents have it. */
export function placeOf({ first_page, last_page, heading, also = [] }) {
  const pages = first_page && (last_page && last_page !== first_page ? `${t("pages")} ${first_page}–${last_page}` : `${t("page")} ${first_page}`);
  const told = inLine(pages, heading, also.length && `${t("the same in")} ${also.map((each) => each.name).join(", ")}`);
  return told && h("span.hint", ` ${told}`);
}

export const reader = {
  load(_base, document, range = "0-0") {
    const [start, end] = range.split("-").map(Number);
    return get(`/kb/documents/${document}`, { start, end, around: AROUND });
  },

  draw(view, base, id, range = "0-0", { document, passages, previous, next }) {
    const [start, end] = range.split("-").map(Number);
    const isCited = (each) => end > start && each.start < end && each.end > start;
    const to = (at, text) => h("a.button", { href: addressOf(base, { document: id, start: at, end: at }) }, text);
    const rows = passages.map((each) => h("article.passage", { "data-start": each.start },
      h("p.hint", placeOf(each)), h("p", { class: isCited(each) ? "quote found" : "quote" }, each.text)));
    requestAnimationFrame(() => view.querySelector(".found")?.scrollIntoView({ block: "center" }));
    return [
      h("header.row", backTo(`#/knowledge/${encodeURIComponent(base)}`, t("Knowledge")), h("h1", document.title || document.name),
        h("a.button", { href: originalOf(id, (passages.find(isCited) || passages[0] || {}).first_page), target: "_blank", rel: "noopener" }, t("Open the file"))),
      h("p.hint", inLine(document.name, document.pages && t("pages: {count}", { count: number(document.pages) }))),
      h("nav.row", { "aria-label": t("Passages") }, previous !== null && to(previous, t("Earlier")), next !== null && to(next, t("Later"))),
      rows.length ? rows : h("p", t("It has no text that could be read.")),
    ];
  },
};
