// The list of chats beside one of them.

import { app, attempt, chatPath, day, get, h, icon, iconButton, inLine, keepPlace, monthOf, nameOf, number, placeOf, searchField, setCurrent, t, toast } from "../page.js";
import "./chat.js";
import { chatMenu } from "./chat_menu.js";
import { newChat, openNew, titleOf } from "./new_chat.js";

const SEEN = "klaw.seen.";
const FOLLOWED = 40;
const titles = new Map(); // of the chats in the list

/** How far a person has read a chat on this device. */
export function seen(chat) {
  return Number(localStorage.getItem(SEEN + chat) || 0);
}

export function setSeen(chat, seq) {
  if (seq > seen(chat)) localStorage.setItem(SEEN + chat, seq);
}

class Chats extends HTMLElement {
  where = [];
  archived = false;
  pages = 1;
  asked = 0; // a late answer never replaces that to a later question
  shown = 0;
  rows = new Map();

  connectedCallback() {
    this.list = h("ul.list");
    this.search = searchField(t("Search all"), { oninput: () => this.findSoon() });
    this.more = h("button.quiet", { hidden: true }, t("More"));
    this.place = h("div.chat-place");
    this.side = h("section.side", { "aria-label": t("Chats") }, h("h1.unseen", t("Chats")),
      h("div.row", h("button.main", () => openNew(), icon("new"), t("New chat")), iconButton("temporary", t("Temporary chat"), () => openNew("/temporary"))), this.search,
      this.list, this.more,
      h("button.quiet", (event) => this.toggleArchived(event.target), t("Archived chats")));
    this.replaceChildren(this.side, this.place);
    const back = () => document.hidden || this.refreshSoon();
    this.gone = new AbortController();
    app.socket.addEventListener("frame", ({ detail }) => ["message", "ack", "chat"].includes(detail.type) && this.refreshSoon(), this.gone);
    app.socket.addEventListener("online", back, this.gone);
    document.addEventListener("visibilitychange", back, this.gone);
    this.refresh();
    this.go(this.where);
  }

  disconnectedCallback() {
    this.gone.abort();
  }

  go(where) {
    this.where = where;
    const [chat, seq] = where, open = this.place.firstElementChild; // an empty name: a new chat; none: the list
    this.classList.toggle("with-chat", chat !== undefined);
    if (!chat) {
      this.place.replaceChildren(newChat(seq === "temporary"));
      if (chat === undefined && open) this.list.querySelector(`a[data-chat="${CSS.escape(open.chat)}"]`)?.focus();
    } else if (open?.chat === chat) {
      if (!open.begun) open.show(Number(seq) || 0);
      open.begun = false;
    } else this.place.replaceChildren(Object.assign(document.createElement("klaw-chat"), { chat, at: Number(seq) || 0 }));
    if (chat && !this.rows.has(chat)) this.refreshSoon();
    this.mark();
  }

  refreshSoon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.refresh(), 300);
  }

  async refresh() {
    if (this.search.value.trim()) return;
    const { archived } = this, asked = this.asked += 1;
    const { chats, more } = await this.all().catch((error) => error.status && toast(error.message)) || {};
    if (!chats || this.search.value.trim() || asked < this.shown || archived !== this.archived) return;
    this.shown = asked;
    if (!this.archived) chats.slice(0, FOLLOWED).filter(({ name }) => !app.socket.chats.has(name)).forEach((chat) => app.socket.watch(chat.name, chat.last_seq));
    this.more.hidden = !more;
    this.more.onclick = () => { this.pages += 1; this.refresh(); };
    const open = this.place.firstElementChild, known = chats.find((chat) => chat.name === open?.chat);
    if (known) open.named(known);
    for (const chat of chats) chat.unread = this.unread(chat);
    const written = JSON.stringify([this.archived, chats]);
    if (written === this.written) return this.mark();
    if (this.list.querySelector("details[open]")) return this.refreshSoon();
    this.written = written;
    const focused = this.list.contains(document.activeElement) && document.activeElement.closest("li");
    const shown = [], same = [], rows = new Map();
    let last;
    for (const chat of chats) { // its row stays the same element
      const text = JSON.stringify(chat), row = this.rows.get(chat.name) || h("li", { "data-chat": chat.name }), group = groupOf(chat);
      if (group !== last) shown.push(h("li.group", h("h2", last = group)));
      if (row.text === text) same.push(row);
      else row.replaceChildren(...this.entry(chat));
      row.text = text;
      titles.set(chat.name, titleOf(chat));
      rows.set(chat.name, row);
      shown.push(row);
    }
    this.rows = rows;
    if (!chats.length) shown.push(hint(this.archived ? "No archived chats." : "No chats yet. Your first message begins one."));
    keepPlace(this.side, this.side.scrollTop ? same : [], () => this.list.replaceChildren(...shown));
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

  /** How many messages came since the chat was read on this device. */
  unread(chat) {
    if (!seen(chat.name)) setSeen(chat.name, chat.last_seq);
    return chat.name === this.where[0] ? 0 : Math.max(0, chat.last_seq - seen(chat.name));
  }

  entry(chat) {
    return [h("a", { href: `#${chatPath(chat.name)}`, "data-chat": chat.name },
      h("span.name", titleOf(chat)), chat.temporary && h("span.badge", t("Temporary")),
      chat.unread > 0 && h("span.badge", { title: t("new messages") }, number(chat.unread)), h("time", day(chat.updated_at)),
      chat.preview && h("span.excerpt", chat.preview)),
    chatMenu(chat, () => this.refresh())];
  }

  mark() {
    this.list.querySelectorAll("a").forEach((link) => setCurrent(link, link.dataset.chat === this.where[0]));
  }

  toggleArchived(button) {
    this.archived = !this.archived;
    button.textContent = this.archived ? t("Chats") : t("Archived chats");
    this.refresh();
  }

  findSoon() {
    clearTimeout(this.typing);
    this.typing = setTimeout(() => this.find(), 250);
  }

  async find(page) {
    const query = this.search.value.trim();
    this.written = "";
    if (!query) return this.refresh();
    const found = await attempt(get("/search", { query, limit: 30, page }));
    if (!found || query !== this.search.value.trim()) return;
    const hits = hitsOf(found);
    if (page) this.list.append(...hits);
    else this.list.replaceChildren(...(found.degraded.length ? [hint("Only words are looked for now, not meaning.")] : []), ...(hits.length ? hits : [hint("Nothing was found.")]));
    this.more.hidden = !found.next;
    this.more.onclick = () => this.find(found.next);
  }
}

const hint = (text) => h("li.hint", t(text));

function groupOf({ pinned, updated_at }) {
  if (pinned) return t("Pinned");
  const days = Math.round((new Date().setHours(0, 0, 0, 0) - new Date(updated_at).setHours(0, 0, 0, 0)) / 864e5);
  return days < 31 ? t(days < 1 ? "Today" : days < 2 ? "Yesterday" : days < 8 ? "Last 7 days" : "Last 30 days")
    : monthOf(updated_at);
}

export const hitsOf = (found) => [...(found.people || []).map(person), ...(found.topics || []).map(topic), ...found.results.map(result)];

const hit = (href, name, time, text) => h("li", h("a", { href }, h("span.name", name), time && h("time", day(time)), h("span.excerpt", text)));

const called = (chat) => titles.get(nameOf(chat)) || titleOf({ name: nameOf(chat) });

const person = (found) => hit(`#/memory/people/${found.id}`, `${t("person")}: ${found.name}`, found.last_at, inLine(found.relation, found.facts.map((fact) => fact.text)));

const topic = (found) => hit(`#/memory/topics/${found.id}`, `${t("topic")}: ${called(found.chat)}`, found.last_at, found.summary);

function result(found) {
  const text = marked(found.snippet, found.marks);
  if (found.kind === "fact") return hit(`#/memory/facts/${found.id}`, t("fact"), found.updated_at, text);
  if (found.kind === "file") return hit(null, `${t("file")}: ${found.path}:${found.line}`, null, text);
  const about = found.kind === "note" ? ` · ${found.tool}` : "";
  return hit(placeOf(found.chat, found.seq), called(found.chat) + about, found.created_at, text);
}

/** A text with its matches marked. The server counts characters, JavaScript their halves. */
function marked(text, marks) {
  const characters = Array.from(text), pieces = [];
  let at = 0;
  for (const [begin, end] of marks) {
    pieces.push(characters.slice(at, begin).join(""), h("mark", characters.slice(begin, end).join("")));
    at = end;
  }
  return [...pieces, characters.slice(at).join("")];
}

customElements.define("klaw-chats", Chats);
