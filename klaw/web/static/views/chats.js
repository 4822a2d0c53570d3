// The list of chats beside one of them.

import { app } from "/static/app.js";
import { get, Problem } from "/static/api.js";
import { h, nameOf, placeOf, setCurrent, toast } from "/static/dom.js";
import { day, number, t } from "/static/i18n.js";
import "/static/views/chat.js";
import { asked, chatMenu } from "/static/views/chat_menu.js";

const SEEN = "klaw.seen.";
const FOLLOWED = 40;
const NAME = "[\\p{L}\\p{N}](?:[\\p{L}\\p{N}\\p{M}_. \\-]*[\\p{L}\\p{N}\\p{M}_.\\-])?";

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

  connectedCallback() {
    this.list = h("ul", { class: "list" });
    this.search = h("input", { type: "search", placeholder: t("Search all"), "aria-label": t("Search"),
      oninput: () => this.findSoon() });
    this.more = h("button", { class: "quiet", hidden: true }, t("More"));
    this.place = h("div", { class: "chat-place", "data-hint": t("Ask anything, or pick a chat.") });
    this.side = h("section", { class: "side", "aria-label": t("Chats") }, h("h1", { class: "unseen" }, t("Chats")),
      h("div", { class: "row" }, h("button", { class: "main", onclick: () => this.begin() }, t("New chat")), this.search),
      this.list, this.more,
      h("button", { class: "quiet", onclick: (event) => this.toggleArchived(event.target) }, t("Archived chats")));
    this.replaceChildren(this.side, this.place);
    this.onFrame = ({ detail }) => ["message", "ack"].includes(detail.type) && this.refreshSoon();
    this.onBack = () => document.hidden || this.refreshSoon();
    app.socket.addEventListener("frame", this.onFrame);
    app.socket.addEventListener("online", this.onBack);
    document.addEventListener("visibilitychange", this.onBack);
    this.refresh();
    this.go(this.where);
  }

  disconnectedCallback() {
    app.socket.removeEventListener("frame", this.onFrame);
    app.socket.removeEventListener("online", this.onBack);
    document.removeEventListener("visibilitychange", this.onBack);
  }

  go(where) {
    this.where = where;
    const [chat, seq] = where;
    this.classList.toggle("with-chat", Boolean(chat));
    const open = this.place.firstElementChild;
    if (!chat) {
      this.place.replaceChildren();
      if (open) [...this.list.querySelectorAll("a")].find((link) => link.dataset.chat === open.chat)?.focus();
    } else if (open && open.chat === chat) open.show(Number(seq) || 0);
    else this.place.replaceChildren(Object.assign(document.createElement("klaw-chat"), { chat, at: Number(seq) || 0 }));
    this.mark();
  }

  refreshSoon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.refresh(), 300);
  }

  async refresh() {
    if (this.search.value.trim()) return;
    let chats, more;
    try {
      ({ chats, more } = await this.all(this.archived));
    } catch (error) {
      if (error instanceof Problem && error.status) toast(error.message);
      return;
    }
    if (this.search.value.trim()) return;
    const news = chats.slice(0, FOLLOWED).filter((chat) => !this.archived && !app.socket.chats.has(chat.name));
    news.forEach((chat) => app.socket.watch(chat.name, chat.last_seq));
    this.more.hidden = !more;
    this.more.onclick = () => {
      this.pages += 1;
      this.refresh();
    };
    const open = this.place.firstElementChild, known = chats.find((chat) => chat.name === open?.chat);
    if (known) open.named(known);
    const shown = chats.map((chat) => ({ ...chat, unread: this.unread(chat) }));
    const written = JSON.stringify([this.archived, shown]);
    if (written === this.written) return this.mark();
    if (this.list.querySelector("details[open]")) return this.refreshSoon();
    this.written = written;
    const focused = this.list.contains(document.activeElement) && document.activeElement.closest("li").dataset.chat;
    this.list.replaceChildren(...shown.map((chat) => this.entry(chat)));
    if (!shown.length) this.list.append(h("li", { class: "hint" }, t(this.archived ? "No archived chats." : "No chats yet. Begin one with “New chat”.")));
    if (focused) [...this.list.querySelectorAll("a")].find((link) => link.dataset.chat === focused)?.focus();
    this.mark();
  }

  /** As many pages of the list as are open. */
  async all(archived) {
    const found = [];
    let next = 1;
    for (let page = 1; page <= this.pages && next; page += 1) {
      const told = await get("/chats", { archived: archived || undefined, limit: 100, page });
      found.push(...told.chats);
      next = told.next;
    }
    return { chats: found, more: next };
  }

  /** How many messages came since the chat was read on this device. */
  unread(chat) {
    if (!seen(chat.name)) setSeen(chat.name, chat.last_seq);
    return chat.name === this.where[0] ? 0 : Math.max(0, chat.last_seq - seen(chat.name));
  }

  entry(chat) {
    return h("li", { "data-chat": chat.name }, h("a", { href: `#/chats/${encodeURIComponent(chat.name)}`, "data-chat": chat.name },
      h("span", { class: "name" }, chat.title || chat.name),
      chat.unread > 0 && h("span", { class: "badge", title: t("new messages") }, number(chat.unread)), h("time", {}, day(chat.updated_at))),
    chatMenu(chat, () => this.refresh()));
  }

  mark() {
    for (const link of this.list.querySelectorAll("a")) {
      setCurrent(link, link.dataset.chat === this.where[0]);
    }
  }

  toggleArchived(button) {
    this.archived = !this.archived;
    button.textContent = this.archived ? t("Chats") : t("Archived chats");
    this.refresh();
  }

  begin() {
    const name = h("input", { required: true, maxLength: 64, pattern: NAME, title: t("Letters, digits, spaces and _ - . only"),
      "aria-label": t("Name of the chat"), placeholder: t("Name of the chat") });
    asked(name, () => { location.hash = `#/chats/${encodeURIComponent(name.value.trim().normalize("NFC"))}`; });
  }

  findSoon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.find(), 250);
  }

  async find(page) {
    const query = this.search.value.trim();
    this.written = "";
    if (!query) return this.refresh();
    let found;
    try {
      found = await get("/search", { query, limit: 30, page });
    } catch (error) {
      return toast(error.message);
    }
    if (query !== this.search.value.trim()) return;
    const hits = hitsOf(found);
    if (page) this.list.append(...hits);
    else this.list.replaceChildren(...(found.degraded.length ? [h("li", { class: "hint" }, t("Only words are looked for now, not meaning."))] : []), ...hits);
    if (!page && !hits.length) this.list.append(h("li", { class: "hint" }, t("Nothing was found.")));
    this.more.hidden = !found.next;
    this.more.onclick = () => this.find(found.next);
  }
}

// -- what a search finds --

/** A row for each person, topic, fact, file and message that a search found. */
export const hitsOf = (found) => [...(found.people || []).map(person), ...(found.topics || []).map(topic), ...found.results.map(result)];

function hit(href, name, time, ...more) {
  return h("li", {}, h("a", { href }, h("span", { class: "name" }, name), time && h("time", {}, day(time)), more));
}

function person(found) {
  return hit(`#/memory/people/${found.id}`, `${t("person")}: ${found.name}`, found.last_at,
    h("span", { class: "excerpt" }, [found.relation, ...found.facts.map((fact) => fact.text)].filter(Boolean).join(" · ")));
}

function topic(found) {
  return hit(`#/memory/topics/${found.id}`, `${t("topic")}: ${nameOf(found.chat)}`, found.last_at, h("span", { class: "excerpt" }, found.summary));
}

function result(found) {
  const text = h("span", { class: "excerpt" }, marked(found.snippet, found.marks));
  if (found.kind === "fact") return hit(`#/memory/facts/${found.id}`, t("fact"), found.updated_at, text);
  if (found.kind === "file") return hit(null, `${t("file")}: ${found.path}:${found.line}`, null, text);
  const about = found.kind === "note" ? ` · ${found.tool}` : "";
  return hit(placeOf(found.chat, found.seq), nameOf(found.chat) + about, found.created_at, text);
}

/** A text with its matches marked. The server counts characters, JavaScript their halves. */
function marked(text, marks) {
  const characters = Array.from(text), pieces = [];
  let at = 0;
  for (const [begin, end] of marks) {
    pieces.push(characters.slice(at, begin).join(""), h("mark", {}, characters.slice(begin, end).join("")));
    at = end;
  }
  return [...pieces, characters.slice(at).join("")];
}

customElements.define("klaw-chats", Chats);
