import { app, chatPath, get, h, isEnter, openDialog, pointAt, settled, status, t } from "../forms.js";
import { VIEWS } from "../views.js";
import { hitsOf } from "./chats.js";
import { openNew, titleOf } from "./chat_actions.js";

const MOST = 50;
const KEYS = {
	"Ctrl K": "Go anywhere", "Ctrl Shift O": "New chat", Enter: "Send", "Shift Enter": "New line",
	Esc: "Close, or stop the answer", "?": "Keyboard shortcuts",
};

export async function go() {
	const open = document.getElementById("places");
	if (open) return open.closest("dialog").close();
	let chats = [], found = [], rows = [], at = 0;
	const searchSoon = settled(200, search), told = status(), label = t("Go anywhere");
	const field = h("input", { role: "combobox", ariaExpanded: "true", "aria-controls": "places", ariaLabel: label,
		autocomplete: "off", placeholder: t("A chat, a view, or words to search for"),
		oninput: () => {
			at = 0;
			found = [];
			draw();
			searchSoon();
		},
		onkeydown: (event) => {
			const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
			if (step) at = (at + step + rows.length) % rows.length || 0;
			else if (isEnter(event)) rows[at]?.click();
			else return;
			event.preventDefault();
			draw();
		} });
	const list = h("div.list", { id: "places", role: "listbox", ariaLabel: label, onclick: () => dialog.close() });
	const dialog = openDialog(label, h("div.row", field), told, list);
	const row = (name, way, what = "") =>
		h("a", { [way.call ? "onclick" : "href"]: way }, h("span.name", name), h("span.hint", what));
	const { operator } = app.me;
	const commands = [
		row(t("New chat"), begin), operator && row(t("Connect a model"), "#/system/connect"),
		row(t("Keyboard shortcuts"), keys, "?"),
		...VIEWS.map((each) => (operator || !each.operator) && row(t(each.name), `#/${each.path}`)),
	].filter(Boolean);

	function draw() {
		const words = field.value.toLowerCase().split(/\s+/);
		const fits = ({ textContent }) => words.every((word) => textContent.toLowerCase().includes(word));
		rows = [...[...commands, ...chats].filter(fits).slice(0, MOST), ...found];
		rows.forEach((each) => { each.tabIndex = -1; });
		list.replaceChildren(...rows);
		pointAt(field, rows, at);
		told.textContent = rows.length ? "" : t("Nothing was found.");
	}

	async function search() {
		const query = field.value.trim();
		const all = query && await get("/search", { query, limit: 10 }).catch(() => null);
		if (!all || query !== field.value.trim()) return;
		found = hitsOf(all).map((each) => each.firstChild).filter((each) => each.href);
		draw();
	}

	draw();
	const { chats: all } = await get("/chats", { limit: 100 }).catch(() => ({ chats: [] }));
	chats = all.map((chat) => row(titleOf(chat), `#${chatPath(chat.name)}`, t("chat")));
	draw();
}

export function begin() {
	document.querySelectorAll("dialog").forEach((each) => each.close());
	openNew();
}

export const keys = () => openDialog(t("Keyboard shortcuts"), h("dl.shortcuts",
	Object.entries(KEYS).map(([pressed, what]) =>
		[h("dt", pressed.split(" ").map((each) => [h("kbd", each), " "])), h("dd", t(what))])));
