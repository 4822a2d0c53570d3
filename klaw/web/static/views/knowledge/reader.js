import { backTo, get, h, inLine, t } from "../../page.js";

const AROUND = 10;

export const addressOf = (base, { document, start, end }) =>
	`#/knowledge/${encodeURIComponent(base)}/${document}/${start ?? 0}-${end ?? 0}`;

export const originalOf = (document, page) => h("a.button", { target: "_blank", rel: "noopener",
	href: `api/v1/kb/documents/${document}/file${page ? `#page=${page}` : ""}` }, t("Open the file"));

export const passageLine = (base, each, opened, after, before) => h("li",
	h("p", before && h("strong", before),
		each.document ? h("a", { href: addressOf(base, each), onclick: opened }, each.name) : each.name,
		placeOf(each), after),
	each.text && h("p.quote.clamp", each.text));

export function placeOf({ first_page: first, last_page: last, heading, also = [] }) {
	const pages = first && (last && last !== first ? `${t("pages")} ${first}–${last}` : `${t("page")} ${first}`);
	const others = also.length && `${t("the same in")} ${also.map((each) => each.name).join(", ")}`;
	const told = inLine(pages, heading, others);
	return told && h("span.hint", ` ${told}`);
}

const span = (range = "0-0") => range.split("-").map(Number);

export const reader = {
	load(_base, document, range) {
		const [start, end] = span(range);
		return get(`/kb/documents/${document}`, { start, end, around: AROUND });
	},

	draw(view, base, id, range, { document, passages, previous, next }) {
		const [start, end] = span(range);
		const isCited = (each) => end > start && each.start < end && each.end > start;
		const to = (at, text) => at !== null
			&& h("a.button", { href: addressOf(base, { document: id, start: at, end: at }) }, t(text));
		const rows = passages.map((each) => h("article.passage", { "data-start": each.start },
			h("p.hint", placeOf(each)), h(isCited(each) ? "p.quote.found" : "p.quote", each.text)));
		requestAnimationFrame(() => view.querySelector(".found")?.scrollIntoView({ block: "center" }));
		const { first_page: page } = passages.find(isCited) || passages[0] || {};
		return [
			h("header.row", backTo(`#/knowledge/${encodeURIComponent(base)}`, "Knowledge"),
				h("h1", document.title || document.name), originalOf(id, page)),
			h("p.hint", inLine(document.name, document.pages && t("pages: {count}", { count: document.pages }))),
			h("nav.row", { ariaLabel: t("Passages") }, to(previous, "Earlier"), to(next, "Later")),
			rows.length ? rows : h("p", t("It has no text that could be read.")),
		];
	},
};
