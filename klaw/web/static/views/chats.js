// The list of chats beside one of them.

import { app } from "/static/app.js";
import { get, patch, post, Problem } from "/static/api.js";
import { confirmed, h, toast } from "/static/dom.js";
import { t, when } from "/static/i18n.js";
import "/static/views/chat.js";

const SEEN = "klaw.seen.";

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

  connectedCallback() {
    this.list = h("ul", { class: "list" });
    this.search = h("input", { type: "search", placeholder: t("Search in everything"), "aria-label": t("Search"),
      oninput: () => this.findSoon() });
    this.place = h("div", { class: "chat-place" });
    this.side = h("section", { class: "side", "aria-label": t("Chats") },
      h("div", { class: "row" }, h("button", { class: "main", onclick: () => this.begin() }, t("New chat")), this.search),
      this.list,
      h("button", { class: "quiet", onclick: (event) => this.toggleArchived(event.target) }, t("Archived chats")));
    this.replaceChildren(this.side, this.place);
    this.onFrame = ({ detail }) => ["message", "ack"].includes(detail.type) && this.refreshSoon();
    app.socket.addEventListener("frame", this.onFrame);
    this.refresh();
    this.go(this.where);
  }

  disconnectedCallback() {
    app.socket.removeEventListener("frame", this.onFrame);
  }

  go(where) {
    this.where = where;
    const [chat, seq] = where;
    this.classList.toggle("with-chat", Boolean(chat));
    if (!chat) return this.place.replaceChildren();
    const open = this.place.firstElementChild;
    if (open && open.chat === chat) open.show(Number(seq) || 0);
    else this.place.replaceChildren(Object.assign(document.createElement("klaw-chat"), { chat, at: Number(seq) || 0 }));
    this.mark();
  }

  refreshSoon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.refresh(), 300);
  }

  async refresh() {
    if (this.search.value.trim()) return;
    try {
      this.chats = (await get("/chats", { archived: this.archived || undefined, limit: 100 })).chats;
    } catch (error) {
      if (error instanceof Problem && error.status) toast(error.message);
      return;
    }
    this.list.replaceChildren(...this.chats.map((chat) => this.entry(chat)));
    this.mark();
  }

  entry(chat) {
    const isOpen = chat.name === this.where[0];
    const unread = isOpen ? 0 : Math.max(0, chat.last_seq - (seen(chat.name) || chat.last_seq));
    if (!seen(chat.name)) setSeen(chat.name, chat.last_seq);
    return h("li", {}, h("a", { href: `#/chats/${encodeURIComponent(chat.name)}` },
      h("span", { class: "name" }, chat.title || chat.name), h("time", {}, when(chat.updated_at)),
      unread > 0 && h("span", { class: "badge" }, String(unread))),
    h("details", { class: "menu" }, h("summary", { "aria-label": `${t("Menu")}: ${chat.title || chat.name}` }, "⋯"),
      h("div", {},
        h("button", { onclick: () => this.rename(chat) }, t("Rename")),
        h("button", { onclick: () => this.change(chat, this.archived ? "restore" : "archive") }, this.archived ? t("Restore") : t("Archive")))));
  }

  mark() {
    for (const link of this.list.querySelectorAll("a")) {
      link.toggleAttribute("aria-current", decodeURIComponent(link.hash) === `#/chats/${this.where[0]}`);
    }
  }

  toggleArchived(button) {
    this.archived = !this.archived;
    button.textContent = this.archived ? t("Chats") : t("Archived chats");
    this.refresh();
  }

  begin() {
    const name = h("input", { required: true, maxLength: 64, "aria-label": t("Name of the chat"), placeholder: t("Name of the chat") });
    this.dialog(name, () => { location.hash = `#/chats/${encodeURIComponent(name.value.trim())}`; });
  }

  rename(chat) {
    const title = h("input", { value: chat.title || chat.name, maxLength: 200, "aria-label": t("Title") });
    this.dialog(title, () => this.change(chat, "rename", { title: title.value.trim() }));
  }

  dialog(field, done) {
    const dialog = h("dialog", { class: "ask", onclose: () => { if (dialog.returnValue === "yes" && field.value.trim()) done(); dialog.remove(); } },
      h("form", { method: "dialog" }, field, h("div", { class: "buttons" },
        h("button", { value: "yes", class: "main" }, t("Save")), h("button", { value: "no", formNoValidate: true }, t("Cancel")))));
    document.body.append(dialog);
    dialog.showModal();
    field.select();
  }

  async change(chat, word, body) {
    try {
      await post(`/chats/${encodeURIComponent(chat.name)}/${word}`, body);
    } catch (error) {
      toast(error.message);
    }
    this.refresh();
  }

  findSoon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.find(), 250);
  }

  async find() {
    const query = this.search.value.trim();
    if (!query) return this.refresh();
    let found;
    try {
      found = (await get("/search", { query, limit: 30 })).results;
    } catch (error) {
      return toast(error.message);
    }
    const chat = (each) => (each.chat || "").split(":").pop();
    this.list.replaceChildren(...found.map((each) => h("li", {}, h("a", { href: `#/chats/${encodeURIComponent(chat(each))}/${each.seq || ""}` },
      h("span", { class: "name" }, chat(each)), h("time", {}, when(each.created_at)), h("span", { class: "excerpt" }, each.text || each.excerpt || "")))));
    if (!found.length) this.list.replaceChildren(h("li", { class: "hint" }, t("Nothing was found.")));
  }
}

customElements.define("klaw-chats", Chats);
