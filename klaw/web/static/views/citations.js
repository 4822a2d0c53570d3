import { get, h, openDialog, t } from "../forms.js";
import { addressOf, originalOf, placeOf } from "./knowledge/reader.js";

export function cite(row, text, { passages: used }) {
	mark(text, new Map(used.map((each) => [each.number, each])));
	row.querySelector(".sources")?.remove();
	const cited = used.filter((each) => each.cited);
	if (cited.length) {
		text.after(h("ol.sources", cited.map((each) =>
			h("li", { value: each.number }, h("button.quiet", () => show(each), each.name), placeOf(each)))));
	}
}

function mark(text, given) {
	const walker = document.createTreeWalker(text, NodeFilter.SHOW_TEXT), nodes = [];
	while (walker.nextNode()) {
		const node = walker.currentNode;
		if (/\[\d+\]/.test(node.data) && !node.parentElement.closest("code, pre, a, button")) nodes.push(node);
	}
	for (const node of nodes) {
		node.replaceWith(...node.data.split(/(\[\d+\])/).map((part) => {
			const each = given.get(Number(/^\[(\d+)\]$/.exec(part)?.[1]));
			if (!each) return part;
			const { number, name } = each, label = `${t("Source")} ${number}: ${name}`;
			return h("button.cite", { title: name, ariaLabel: label, onclick: () => show(each) }, String(number));
		}));
	}
}

const show = (each) => openDialog(`[${each.number}] ${each.name}`, async (dialog) => {
	const { base, document, start, end, iri } = each, path = `/kb/documents/${document}`;
	const { passages } = each.text || !document ? { passages: [each] } : await get(path, { start, end, around: 0 });
	dialog.show(h("p", placeOf(each)), h("p.quote", passages.map(({ text }) => text || "").join("\n")),
		iri && h("p.hint", iri), document && h("div.buttons",
			h("a.button", { href: addressOf(base, each), onclick: dialog.close }, t("Read on")),
			originalOf(document, each.first_page)));
});
