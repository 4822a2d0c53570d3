// One chat: its messages, the answer while it comes, approvals, and what is written next. Only a window of a long chat is
// in the document; older and newer messages are loaded while one scrolls.

import { app } from "/static/app.js";
import { get, post, rendered, Problem } from "/static/api.js";
import { h, setRendered, toast } from "/static/dom.js";
import { t, when } from "/static/i18n.js";
import { setSeen } from "/static/views/chats.js";
import { showMadeFrom } from "/static/views/made_from.js";

const PAGE = 50;
const MOST = 300;
const DRAFT = "klaw.draft.";
const NEAR = 80;

class Chat extends HTMLElement {
  chat = "";
  at = 0;

  connectedCallback() {
    this.rows = new Map();
    this.first = this.last = 0;
    this.detached = false;
    this.scroll = h("div", { class: "messages", role: "log", "aria-label": t("Message"), tabIndex: 0, onscroll: () => this.scrolled() });
    this.pending = h("div", { class: "pending" });
    this.live = h("div", { class: "live" });
    this.state = h("p", { class: "state", role: "status" });
    this.newest = h("button", { class: "newest", hidden: true, onclick: () => this.load() }, t("The newest"));
    this.field = h("textarea", { rows: 1, placeholder: t("Write a message"), "aria-label": t("Write a message"),
      value: localStorage.getItem(DRAFT + this.chat) || "", oninput: () => this.typed(), onkeydown: (event) => this.key(event) });
    this.button = h("button", { class: "main", type: "submit" }, t("Send"));
    this.stop = h("button", { type: "button", hidden: true, onclick: () => app.socket.ask({ type: "stop", chat: this.chat }) }, t("Stop"));
    this.composer = h("form", { class: "composer", onsubmit: (event) => this.submit(event) }, this.field, this.stop, this.button);
    this.offline = h("p", { class: "offline", role: "status", hidden: true }, t("Offline: what you write is kept and sent later."));
    this.heading = h("h1", {}, this.chat);
    this.replaceChildren(
      h("header", {}, h("a", { href: "#/chats", class: "back", "aria-label": t("Chats") }, "‹"), this.heading),
      this.scroll, this.newest, this.state, this.offline, this.composer);
    this.body = h("div", { class: "body" });
    this.scroll.replaceChildren(this.body, this.live, this.pending);
    this.onFrame = ({ detail }) => detail.chat === this.chat && this.take(detail);
    this.onOnline = ({ detail }) => { this.offline.hidden = detail; };
    app.socket.addEventListener("frame", this.onFrame);
    app.socket.addEventListener("online", this.onOnline);
    this.offline.hidden = app.socket.online;
    this.typed();
    this.show(this.at);
    this.field.focus({ preventScroll: true });
  }

  disconnectedCallback() {
    app.socket.removeEventListener("frame", this.onFrame);
    app.socket.removeEventListener("online", this.onOnline);
  }

  // -- what was said ---------------------------------------------------------------------------------------------------

  /** Show the newest messages, or those around one. */
  async show(seq) {
    await this.load(seq ? { before: seq + PAGE / 2 } : {});
    const row = this.rows.get(seq);
    if (row) {
      row.scrollIntoView({ block: "center" });
      row.classList.add("found");
    }
  }

  async load(query = {}) {
    let page;
    try {
      page = await get(`/chats/${encodeURIComponent(this.chat)}/messages`, { limit: PAGE, ...query });
    } catch (error) {
      if (!(error instanceof Problem) || error.code !== "unknown_chat") {
        this.state.textContent = error.message || t("The server does not answer.");
        this.timer = setTimeout(() => this.isConnected && this.load(query), 2000);
        return;
      }
      page = { messages: [], more: false };
    }
    this.rows.clear();
    this.body.replaceChildren();
    this.first = this.last = 0;
    page.messages.forEach((message) => this.put(message));
    this.more = page.more;
    this.detached = Boolean(query.before);
    this.newest.hidden = !this.detached;
    if (!page.messages.length) this.body.replaceChildren(h("p", { class: "hint empty" }, t("No messages yet. Say something.")));
    if (!this.detached) {
      app.socket.watch(this.chat, this.last);
      this.toEnd();
    }
    this.showPending();
  }

  put(message) {
    if (this.rows.has(message.seq)) return;
    this.body.querySelector(".empty")?.remove();
    const row = messageRow(this.chat, message, () => this.load());
    this.rows.set(message.seq, row);
    if (message.seq < this.first) this.body.prepend(row);
    else this.body.append(row);
    this.first = this.first ? Math.min(this.first, message.seq) : message.seq;
    this.last = Math.max(this.last, message.seq);
  }

  async scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroll;
    this.atEnd = scrollHeight - scrollTop - clientHeight < NEAR;
    if (this.loading || !this.first) return;
    if (scrollTop < 4 * NEAR && this.more && this.first > 1) await this.extend({ before: this.first });
    else if (this.atEnd && this.detached) await this.extend({ after: this.last });
    if (this.atEnd && !this.detached) setSeen(this.chat, this.last);
  }

  async extend(query) {
    this.loading = true;
    try {
      const page = await get(`/chats/${encodeURIComponent(this.chat)}/messages`, { limit: PAGE, ...query });
      const height = this.scroll.scrollHeight, top = this.scroll.scrollTop;
      if (query.before) {
        [...page.messages].reverse().forEach((message) => this.put(message));
        this.more = page.more;
        this.scroll.scrollTop = top + this.scroll.scrollHeight - height;
        this.trim((seqs) => seqs.slice(MOST));
      } else {
        page.messages.forEach((message) => this.put(message));
        this.detached = page.more;
        if (!page.more) app.socket.watch(this.chat, this.last);
        this.trim((seqs) => seqs.slice(0, Math.max(0, seqs.length - MOST)));
        this.more = true;
      }
      this.newest.hidden = !this.detached;
    } catch (error) {
      toast(error.message || t("The server does not answer."));
    }
    this.loading = false;
  }

  /** Take the messages that are far away out of the document. */
  trim(far) {
    const seqs = [...this.rows.keys()].sort((one, two) => one - two);
    for (const seq of far(seqs)) {
      if (seq > seqs[0]) this.detached = true;
      this.rows.get(seq).remove();
      this.rows.delete(seq);
    }
    const left = [...this.rows.keys()];
    this.first = Math.min(...left);
    this.last = Math.max(...left);
  }

  toEnd() {
    this.scroll.scrollTop = this.scroll.scrollHeight;
    this.atEnd = true;
    setSeen(this.chat, this.last);
  }

  follow() {
    if (this.atEnd && !this.detached) this.toEnd();
  }

  // -- what happens ----------------------------------------------------------------------------------------------------

  take(frame) {
    const known = TAKES[frame.type];
    if (known) known.call(this, frame);
  }

  showLive(turn) {
    if (this.answer && this.answer.turn === turn) return this.answer;
    const text = h("div", { class: "text plain" }), tools = h("div", { class: "tools-used" });
    this.answer = { turn, length: 0, text, tools, node: document.createTextNode("") };
    text.append(this.answer.node);
    this.live.replaceChildren(h("article", { class: "assistant", "aria-busy": "true" }, tools, text));
    return this.answer;
  }

  hideLive() {
    this.answer = null;
    this.live.querySelector("article")?.remove();
  }

  showPending() {
    const unsent = app.socket.unsent.filter((each) => each.chat === this.chat);
    this.pending.replaceChildren(...unsent.map((each) => h("article", { class: "user unsent" },
      h("div", { class: "text plain" }, each.text), h("footer", {}, t("not sent yet")))));
  }

  showApproval(asked) {
    if (this.live.querySelector(`[data-approval="${asked.id}"]`)) return;
    const answer = (allow) => app.socket.ask({ type: "approve", id: asked.id, allow });
    this.live.append(h("section", { class: "approval", role: "alertdialog", "aria-label": asked.tool, "data-approval": asked.id },
      h("strong", {}, asked.tool), h("pre", {}, asked.what),
      h("div", { class: "buttons" }, h("button", { onclick: () => answer(false) }, t("Refuse")),
        h("button", { class: "main", onclick: () => answer(true) }, t("Allow")))));
    this.follow();
  }

  setState(text, running) {
    this.state.textContent = text;
    this.stop.hidden = !running;
  }

  // -- what is written -------------------------------------------------------------------------------------------------

  typed() {
    localStorage.setItem(DRAFT + this.chat, this.field.value);
    this.field.style.height = "auto";
    this.field.style.height = `${Math.min(this.field.scrollHeight + 2, 240)}px`;
  }

  key(event) {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      this.submit(event);
    }
  }

  submit(event) {
    event.preventDefault();
    const text = this.field.value;
    if (!text.trim()) return;
    app.socket.send(this.chat, text);
    this.field.value = "";
    this.typed();
    localStorage.removeItem(DRAFT + this.chat);
    if (this.detached) this.load();
    else {
      this.showPending();
      if (!app.socket.chats.has(this.chat)) app.socket.watch(this.chat, 0);
      this.toEnd();
    }
  }
}

const TAKES = {
  message(frame) {
    if (frame.role === "assistant" || frame.kind === "tool_call") this.hideLive();
    if (!this.detached) this.put(frame);
    this.showPending();
    this.follow();
  },
  async ack(frame) {
    this.showPending();
    if (this.detached || this.rows.has(frame.seq)) return;
    const page = await get(`/chats/${encodeURIComponent(this.chat)}/messages`, { after: Math.max(0, frame.seq - 1), limit: 1 }).catch(() => null);
    page?.messages.forEach((message) => this.put(message));
    this.follow();
  },
  delta(frame) {
    const live = this.showLive(frame.turn);
    const text = live.node.data;
    const kept = frame.offset >= live.length ? text : Array.from(text).slice(0, frame.offset).join("");
    live.length = frame.offset + Array.from(frame.text).length;
    if (kept === text) live.node.appendData(frame.text);
    else live.node.data = kept + frame.text;
    this.setState(t("answering"), true);
    this.follow();
  },
  tool(frame) {
    const { tools } = this.showLive(frame.turn);
    let line = tools.querySelector(`[data-call="${CSS.escape(frame.call)}"]`);
    if (!line) {
      line = h("div", { class: "tool", "data-call": frame.call }, h("strong", {}, frame.name), " ", h("span", {}, frame.what || ""));
      tools.append(line);
    }
    line.dataset.state = frame.state;
    this.follow();
  },
  status(frame) {
    const words = { waiting: t("waiting"), thinking: t(frame.doing || "thinking"), answering: t("answering") };
    this.setState(words[frame.state] || "", ["thinking", "answering"].includes(frame.state));
    if (frame.ended) this.hideLive();
  },
  approval(frame) {
    this.showApproval(frame);
  },
  approval_ended(frame) {
    this.live.querySelector(`[data-approval="${frame.id}"]`)?.replaceChildren(t(frame.outcome));
  },
  error(frame) {
    const told = h("section", { class: "error", role: "alert" }, frame.message);
    if (frame.turn) told.append(" ", h("button", { onclick: () => { told.remove(); app.socket.send(this.chat, "/retry"); } }, t("Retry")));
    if (frame.turn || !frame.retryable) this.live.append(told);
    this.showPending();
    this.follow();
  },
};

/** A stored message; `changed` is called when something was forgotten. */
function messageRow(chat, message, changed) {
  const row = h("article", { class: `${message.role} ${message.kind}`, "data-seq": message.seq });
  if (message.kind === "session_break") {
    row.append(h("p", { class: "hint" }, t("A new segment begins here.")));
    return row;
  }
  if (message.kind === "tool_result") {
    row.append(h("details", {}, h("summary", {}, t("result")), h("pre", {}, message.content)));
    return row;
  }
  if (message.kind === "tool_call" && !message.content.trim()) {
    row.append(h("p", { class: "hint" }, t("tool call")));
    return row;
  }
  const text = h("div", { class: "text plain" }, message.content);
  row.append(text, h("footer", {}, h("time", { dateTime: message.created_at }, when(message.created_at)),
    message.role === "assistant" && message.turn && h("button", { class: "quiet", onclick: () => showMadeFrom(chat, message.turn, changed) },
      t("Made from"))));
  if (message.role === "assistant" && /[*_`#>|\[\]~\-\d]/.test(message.content)) {
    rendered(message.content).then((html) => {
      text.classList.remove("plain");
      setRendered(text, html);
    }).catch(() => null);
  }
  return row;
}

customElements.define("klaw-chat", Chat);
