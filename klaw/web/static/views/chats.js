import {
	app, attempt, chatPath, day, get, h, icon, iconButton, inLine, keepPlace, monthOf, nameOf, number,
	placeOf, searchField, setCurrent, settled, t, toast,
} from "../page.js";
import "./chat.js";
import { chatMenu, newChat, openNew, titleOf } from "./chat_actions.js";

const SEEN = "klaw.seen.";
const FOLLOWED = 40;
const titles = new Map();

const seen = (chat) => Number(localStorage.getItem(SEEN + chat) || 0);

export function setSeen(chat, seq) {
	if (seq > seen(chat)) localStorage.setItem(SEEN + chat, seq);
}

export default class extends HTMLElement {
	where = [];
	archived = false;
	pages = 1;
	asked = 0; // a late answer never replaces a later one
	shown = 0;
	rows = new Map();
	refreshSoon = settled(300, () => this.refresh());

	connectedCallback() {
		this.list = h("ul.list");
		this.search = searchField("Search all", { oninput: settled(250, () => this.find()) });
		this.more = h("button.quiet", { hidden: true }, t("More"));
		this.place = h("div.chat-place");
		const begin = h("button.main", () => openNew(), icon("new"), t("New chat"));
		const temporary = iconButton("temporary", "Temporary chat", () => openNew("/temporary"));
		const other = h("button.quiet", () => {
			this.archived = !this.archived;
			other.textContent = t(this.archived ? "Chats" : "Archived chats");
			this.refresh();
		}, t("Archived chats"));
		this.side = h("section.side", { ariaLabel: t("Chats") }, h("h1.unseen", t("Chats")),
			h("div.row", begin, temporary), this.search, this.list, this.more, other);
		this.replaceChildren(this.side, this.place);
		this.gone = new AbortController();
		const listen = (place, event, take) => place.addEventListener(event, take, this.gone);
		const back = () => document.hidden || this.refreshSoon();
		listen(app.socket, "frame", ({ detail: { type } }) =>
			["message", "ack", "chat"].includes(type) && this.refreshSoon());
		listen(app.socket, "online", back);
		listen(document, "visibilitychange", back);
		this.refresh();
		this.go(this.where);
	}

	disconnectedCallback() {
		this.gone.abort();
	}

	go(where) {
		this.where = where;
		const [chat, seq] = where, at = Number(seq) || 0; // an empty name: a new chat; none: the list
		const open = this.place.firstElementChild;
		this.classList.toggle("with-chat", chat !== undefined);
		if (!chat) {
			this.place.replaceChildren(newChat(seq === "temporary"));
			if (chat === undefined && open) this.list.querySelector(`a[data-chat="${CSS.escape(open.chat)}"]`)?.focus();
		} else if (open?.chat === chat) {
			if (!open.begun) open.show(at);
			open.begun = false;
		} else this.place.replaceChildren(h("klaw-chat", { chat, at }));
		if (chat) this.refreshSoon();
		this.mark();
	}

	async refresh() {
		const { archived, search, list } = this;
		if (search.value.trim()) return;
		const asked = this.asked += 1;
		const { chats, more } = await this.all().catch((error) => error.status && toast(error.message)) || {};
		if (!chats || search.value.trim() || asked < this.shown || archived !== this.archived) return;
		this.shown = asked;
		if (!archived) {
			chats.slice(0, FOLLOWED).filter(({ name }) => !app.socket.chats.has(name))
				.forEach((chat) => app.socket.watch(chat.name, chat.last_seq));
		}
		this.more.hidden = !more;
		this.more.onclick = () => { this.pages += 1; this.refresh(); };
		const open = this.place.firstElementChild, known = chats.find((chat) => chat.name === open?.chat);
		if (known) open.named(known);
		for (const chat of chats) chat.unread = this.unread(chat);
		const written = JSON.stringify([archived, chats]);
		if (written === this.written) return this.mark();
		if (list.querySelector(":popover-open")) return this.refreshSoon();
		this.written = written;
		const focused = list.contains(document.activeElement) && document.activeElement.closest("li");
		const shown = [], same = [], rows = new Map();
		let last;
		for (const chat of chats) { // its row stays the same element
			const { name } = chat, text = JSON.stringify(chat), group = groupOf(chat);
			const row = this.rows.get(name) || h("li", { "data-chat": name });
			if (group !== last) shown.push(h("li.group", h("h2", last = group)));
			if (row.text === text) same.push(row);
			else row.replaceChildren(...this.entry(chat));
			row.text = text;
			titles.set(name, titleOf(chat));
			rows.set(name, row);
			shown.push(row);
		}
		this.rows = rows;
		if (!chats.length) {
			shown.push(hint(archived ? "No archived chats." : "No chats yet. Your first message begins one."));
		}
		keepPlace(this.side, this.side.scrollTop ? same : [], () => list.replaceChildren(...shown));
		if (focused?.isConnected) focused.querySelector("a").focus({ preventScroll: true });
		this.mark();
	}

	async all() {
		const chats = [];
		let more = 1;
		for (let page = 1; page <= this.pages && more; page += 1) {
			const told = await get("/chats", { archived: this.archived || null, limit: 100, page });
			chats.push(...told.chats);
			more = told.next;
		}
		return { chats, more };
	}

	unread({ name, last_seq: last }) {
		if (!seen(name)) setSeen(name, last);
		return name === this.where[0] ? 0 : Math.max(0, last - seen(name));
	}

	entry(chat) {
		const { name, temporary, unread, updated_at: at, preview } = chat;
		return [h("a", { href: `#${chatPath(name)}`, "data-chat": name },
			h("span.name", titleOf(chat)), temporary && h("span.badge", t("Temporary")),
			unread > 0 && h("span.badge", { title: t("new messages") }, number(unread)), h("time", day(at)),
			preview && h("span.excerpt", preview)),
		chatMenu(chat, () => this.refresh())];
	}

	mark() {
		this.list.querySelectorAll("a").forEach((link) => setCurrent(link, link.dataset.chat === this.where[0]));
	}

	async find(page) {
		const query = this.search.value.trim();
		this.written = "";
		if (!query) return this.refresh();
		const found = await attempt(get("/search", { query, limit: 30, page }));
		if (!found || query !== this.search.value.trim()) return;
		const hits = hitsOf(found);
		if (!page) this.list.replaceChildren();
		if (!page && found.degraded.length) this.list.append(hint("Only words are looked for now, not meaning."));
		this.list.append(...(page || hits.length ? hits : [hint("Nothing was found.")]));
		this.more.hidden = !found.next;
		this.more.onclick = () => this.find(found.next);
	}
}

const hint = (text) => h("li.hint", t(text));

function groupOf({ pinned, updated_at: at }) {
	if (pinned) return t("Pinned");
	const midnight = (time) => new Date(time).setHours(0, 0, 0, 0);
	const days = Math.round((midnight(Date.now()) - midnight(at)) / 864e5);
	const recent = [[1, "Today"], [2, "Yesterday"], [8, "Last 7 days"], [31, "Last 30 days"]].find(([end]) => days < end);
	return recent ? t(recent[1]) : monthOf(at);
}

export const hitsOf = ({ people = [], topics = [], results }) => [
	...people.map(({ id, name, last_at: at, relation, facts }) =>
		hit(`#/memory/people/${id}`, t("person", name), at, inLine(relation, facts.map((fact) => fact.text)))),
	...topics.map(({ id, chat, last_at: at, summary }) =>
		hit(`#/memory/topics/${id}`, t("topic", called(chat)), at, summary)),
	...results.map(result),
];

const hit = (href, name, time, text) =>
	h("li", h("a", { href }, h("span.name", name), time && h("time", day(time)), h("span.excerpt", text)));

const called = (chat) => titles.get(nameOf(chat)) || titleOf({ name: nameOf(chat) });

function result({ kind, id, chat, seq, path, line, tool, name, snippet, marks, created_at: at, updated_at: on }) {
	const text = marked(snippet, marks);
	if (kind === "fact") return hit(`#/memory/facts/${id}`, t("fact"), on, text);
	if (kind === "file") return hit(null, t("file", `${path}:${line}`), null, text);
	return hit(placeOf(chat, seq), inLine(called(chat), tool || name), at, text);
}

/** The server counts characters, JavaScript their halves. */
function marked(text, marks) {
	const characters = Array.from(text), part = (begin, end) => characters.slice(begin, end).join("");
	let at = 0;
	const pieces = marks.map(([begin, end]) => [part(at, begin), h("mark", part(begin, at = end))]);
	return [pieces, part(at)];
}
