// One chat: its messages, the answer while it comes, approvals, and what is written next. Only a window of a long chat is
// in the document; older and newer messages are loaded while one scrolls.

import { app, backTo, chatPath, get, h, icon, iconButton, keepPlace, later, markdown, menu, opened, said, size, t, toast, when } from "../page.js";
import { draftOf, keepDraft } from "../socket.js";
import { chatMenu } from "./chat_menu.js";
import { setSeen } from "./chats.js";
import { shownFiles } from "./files.js";
import { beginning, temporaryMark, titleOf } from "./new_chat.js";
import { variantButtons } from "./variants.js";

const PAGE = 50;
const MOST = 300;
const NEAR = 80;
/** Whether there is a mouse, and so a keyboard. */
const isFine = () => matchMedia("(pointer: fine)").matches;

class Chat extends HTMLElement {
  chat = "";
  at = 0;
  /** What sends the first message of a new chat. */
  starts = null;

  connectedCallback() {
    this.rows = new Map();
    this.first = this.last = 0;
    this.detached = false;
    this.scroll = h("div.messages", { role: "log", "aria-live": "off", "aria-label": t("Messages"), tabIndex: 0, onscroll: () => this.scrolled() });
    this.pending = h("div.pending");
    this.live = h("div.live");
    this.state = h("p.state", { role: "status" });
    this.heard = h("p.unseen", { role: "status" }); // what a screen reader says: whole answers, not their pieces
    this.newest = iconButton("down", t("The newest"), () => this.load(), { hidden: true });
    this.field = h("textarea", { rows: 1, placeholder: t("Write a message"), "aria-label": t("Write a message"),
      value: draftOf(this.chat), oninput: () => this.typed(), onkeydown: (event) => this.key(event) });
    this.button = iconButton("send", t("Send"), null, { type: "submit", class: "icon main" });
    this.stop = iconButton("stop", t("Stop"), () => app.socket.ask({ type: "stop", chat: this.chat }), { hidden: true });
    this.composer = h("form.composer", { onsubmit: (event) => this.submit(event) }, this.field, this.button);
    this.files = Object.assign(document.createElement("klaw-files"), { chat: this.chat, field: this.field });
    this.files.listen(this);
    this.offline = h("p.offline", { role: "status", hidden: true }, t("Offline: what you write is kept and sent later."));
    this.tooLong = h("p.offline", { role: "alert", hidden: true });
    this.heading = h("h1", titleOf({ name: this.chat, temporary: this.temporary }));
    this.known = h("span.known");
    this.model = h("button.quiet.model", { hidden: true, title: t("Model"), onclick: () => later("models", "choose", this.chat) });
    this.menu = h("span.menu-place");
    this.replaceChildren(
      h("header", backTo("#/chats", t("Chats")), this.heading, this.known, this.model, this.menu),
      this.scroll, this.newest, h("div.doing", this.state, this.stop), this.offline, this.tooLong, this.files, this.composer, this.heard);
    this.composer.prepend(this.files.button);
    this.body = h("div.body");
    this.scroll.replaceChildren(this.body, this.live, this.pending);
    this.grows = new ResizeObserver(() => this.follow());
    for (const each of [this.scroll, this.body, this.live]) this.grows.observe(each);
    this.gone = new AbortController();
    const listen = (event, take, place = app.socket) => place.addEventListener(event, take, this.gone);
    listen("returned", ({ detail }) => detail.chat === this.chat && this.takeBack(detail));
    listen("frame", ({ detail }) => detail.chat === this.chat && TAKES[detail.type]?.call(this, detail));
    listen("online", ({ detail }) => {
      this.offline.hidden = detail;
      if (!detail) this.setState("", false);
      else if (!this.written) this.know();
    });
    listen("visibilitychange", () => this.read(), document);
    this.offline.hidden = app.socket.online || !app.socket.attempt; // not while it connects for the first time
    this.typed();
    this.know();
    this.show(this.at);
    if (!this.at && isFine()) this.field.focus({ preventScroll: true });
  }

  /** Ask what the server knows of this chat; until then there is no menu, which would be that of another state. */
  async know() {
    const [found, models] = await Promise.all([get("/chats", { chat: this.chat }), get(`${chatPath(this.chat)}/models`)].map((each) => each.catch(() => null)));
    if (!this.isConnected) return;
    if (models) {
      this.model.hidden = false;
      this.model.textContent = models.this_chat.split("/").pop();
      this.model.setAttribute("aria-label", `${t("Model")}: ${models.this_chat}`);
      app.speaks = models.speaks;
      if (models.hears) later("voice", "listen", this);
    }
    if (found) this.named(found.chats[0]);
  }

  /** Show what is known of this chat; by default, that it is new. */
  named(chat = { name: this.chat, title: "", temporary: this.temporary }) {
    const bases = chat.bases || [], written = JSON.stringify([chat.title, chat.archived, chat.pinned, chat.temporary, !chat.last_seq, bases]);
    const changed = () => {
      this.know();
      this.closest("klaw-chats")?.refresh();
    };
    if (written === this.written || this.menu.querySelector("[open]")) return; // nobody's menu closes under the finger
    this.written = written;
    this.heading.textContent = titleOf(chat);
    this.known.replaceChildren(...temporaryMark(chat, changed), ...bases.map((base) => h("a", { href: `#/knowledge/${base}`, title: t("Knowledge") }, icon("knowledge"))));
    this.menu.replaceChildren(chatMenu(chat, changed, true));
  }

  disconnectedCallback() {
    this.gone.abort();
    this.grows.disconnect();
    clearTimeout(this.timer);
  }

  // -- what was said --

  async show(seq) {
    await this.load(seq ? { before: seq + PAGE / 2 } : {});
    const row = this.rows.get(seq);
    if (row) {
      row.scrollIntoView({ block: "center" });
      row.classList.add("found");
      row.tabIndex = -1;
      row.focus({ preventScroll: true });
    }
  }

  async load(query = {}) {
    const asked = this.asked = {};
    let page;
    try {
      page = this.starts ? { messages: [] } : await get(`${chatPath(this.chat)}/messages`, { limit: PAGE, ...query });
    } catch (error) {
      if (asked !== this.asked) return;
      if (error.code !== "unknown_chat") {
        this.state.textContent = error.message;
        this.showPending();
        if (!error.status || error.status >= 429) this.timer = setTimeout(() => this.isConnected && this.load(query), 2000);
        return;
      }
      page = { messages: [], more: false };
    }
    if (asked !== this.asked || !this.isConnected) return;
    this.branched = page.branched || 0;
    this.rows.clear();
    this.body.replaceChildren(this.answer?.place || "");
    this.first = this.last = 0;
    page.messages.forEach((message) => this.put(message));
    this.more = page.more;
    this.detached = Boolean(query.before);
    this.newest.hidden = !this.detached;
    if (!page.messages.length && !this.answer) this.body.replaceChildren(beginning(this));
    if (!this.detached) {
      app.socket.watch(this.chat, this.last);
      this.toEnd();
    }
    this.showPending();
  }

  put(message, live) {
    if (this.rows.has(message.seq)) return;
    this.body.querySelector(".empty")?.remove();
    const row = messageRow(this.chat, message, () => this.load(), live);
    if (TOOLS.includes(message.kind)) later("tools", "fill", this.body, row, message);
    this.rows.set(message.seq, row);
    const place = live?.place || row;
    let before = message.seq < this.first ? null : this.body.lastElementChild;
    while (before && !(Number(before.dataset.seq) < message.seq)) before = before.previousElementSibling; // what grows has no number
    if (live) {
      place.dataset.seq = message.seq;
      place.className = "";
    }
    if (before && before.nextElementSibling !== place) before.after(place);
    else if (!before) this.body.prepend(place);
    this.first = this.first ? Math.min(this.first, message.seq) : message.seq;
    this.last = Math.max(this.last, message.seq);
  }

  async scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroll;
    const isAtEnd = scrollHeight - scrollTop - clientHeight < NEAR;
    if (isAtEnd || this.detached || scrollTop < this.top) this.atEnd = isAtEnd; // what grows below does not take one away from the end
    this.top = scrollTop;
    if (this.loading || !this.first) return;
    if (scrollTop < 4 * NEAR && this.more && this.first > 1) await this.extend({ before: this.first });
    else if (this.atEnd && this.detached) await this.extend({ after: this.last });
    this.read();
  }

  read() {
    if (this.atEnd && !this.detached && !document.hidden) setSeen(this.chat, this.last);
  }

  async extend(query) {
    this.loading = true;
    try {
      const page = await get(`${chatPath(this.chat)}/messages`, { limit: PAGE, ...query });
      keepPlace(this.scroll, this.body.children, () => {
        if (query.before) {
          [...page.messages].reverse().forEach((message) => this.put(message));
          this.more = page.more;
          this.trim((seqs) => seqs.slice(MOST));
        } else {
          page.messages.forEach((message) => this.put(message));
          this.detached = page.more;
          this.trim((seqs) => seqs.slice(0, Math.max(0, seqs.length - MOST)));
        }
      });
      if (query.after && !page.more) app.socket.watch(this.chat, this.last);
      this.newest.hidden = !this.detached;
    } catch (error) {
      toast(error.message);
    }
    this.loading = false;
  }

  /** Take the messages that are far away out of the document. */
  trim(far) {
    const seqs = [...this.rows.keys()].sort((one, two) => one - two), gone = far(seqs);
    if (gone.length && gone[0] === seqs[0]) this.more = true;
    else if (gone.length) this.detached = true;
    for (const seq of gone) {
      this.rows.get(seq).closest(".body > *").remove();
      this.rows.delete(seq);
    }
    const left = [...this.rows.keys()];
    this.first = Math.min(...left);
    this.last = Math.max(...left);
  }

  toEnd() {
    this.scroll.scrollTop = this.scroll.scrollHeight;
    this.atEnd = true;
    this.read();
  }

  /** Stay at the end, once in each frame of the screen. */
  follow() {
    if (!this.atEnd || this.detached || this.following) return;
    this.following = requestAnimationFrame(() => {
      this.following = 0;
      if (this.atEnd && !this.detached) this.toEnd();
    });
  }

  // -- what happens --

  showLive(turn) {
    if (this.answer && this.answer.turn === turn) return this.answer;
    const node = document.createTextNode(""), text = h("div.text.plain", { dir: "auto" }, node);
    // Its element stays where it is once the answer is stored: to lay a long one out anew takes longer than a frame.
    const article = h("article.assistant", { ariaBusy: "true" }, text), place = h("div.live", article);
    this.answer = { turn, length: 0, cut: 0, text, node, article, place };
    this.live.replaceChildren();
    this.body.append(place);
    return this.answer;
  }

  hideLive(over) {
    const { answer } = this;
    answer?.thinking?.end();
    if (answer && !answer.place.dataset.seq) answer.place.remove();
    this.answer = null;
    if (over) this.live.querySelectorAll(".approval").forEach((each) => each.remove());
  }

  showPending() {
    const unsent = app.socket.unsent.filter((each) => each.chat === this.chat);
    this.pending.replaceChildren(...unsent.map((each) => h("article.user.unsent",
      each.text && h("div.text.plain", each.text), each.files && shownFiles(each.files),
      h("footer", t("not sent yet")))));
  }

  showApproval(asked) {
    if (this.live.querySelector(`[data-approval="${asked.id}"]`)) return;
    const answer = (allow) => {
      app.socket.ask({ type: "approve", id: asked.id, allow });
      this.field.focus();
    };
    // Where a command runs stands before it, in Klaw's words; all else is shown exactly as it is.
    const what = asked.tool === "host_exec" ? asked.what.replace(/^\[([^\]]*)\]/, (_, where) => `[${where.split(": ").map((each) => said(each)).join(": ")}]`) : asked.what;
    const section = h("section.approval", { role: "alertdialog", "aria-label": asked.tool, "data-approval": asked.id },
      h("strong", asked.tool), h("pre", { tabIndex: 0 }, what),
      h("div.buttons", h("button", () => answer(false), t("Refuse")),
        h("button.main", () => answer(true), t("Allow"))));
    this.live.append(section);
    this.heard.textContent = `${t("Allow")}? ${asked.tool}: ${what}`;
    section.scrollIntoView({ block: "nearest" });
  }

  fail(why) {
    this.live.querySelector(".retry")?.remove();
    this.live.append(h("section.error.retry", { role: "alert" }, why, " ", h("button", () => app.socket.send(this.chat, "/retry"), t("Retry"))));
    this.follow();
  }

  setState(text, running) {
    if (this.state.textContent !== text) this.state.textContent = text;
    this.stop.hidden = !running;
  }

  // -- what is written --

  typed() {
    this.isTooLong();
    keepDraft(this.chat, this.field.value);
    this.field.dir = this.field.value.length < 1e5 ? "auto" : ""; // of megabytes the browser takes minutes to find it out
    this.field.style.height = "auto";
    this.field.style.height = `${Math.min(this.field.scrollHeight + 2, 0.4 * innerHeight)}px`;
    if (this.completing || /^\/\w*$/.test(this.field.value)) later("commands", "complete", this);
  }

  key(event) {
    if (this.completing?.key(event)) return event.preventDefault();
    const sends = event.ctrlKey || event.metaKey || (!event.shiftKey && isFine()); // a phone has no other key for a new line
    if (event.key === "ArrowUp" && !this.field.value) [...this.body.querySelectorAll("button.edit")].pop()?.click();
    if (event.key === "Enter" && sends && !event.isComposing) {
      event.preventDefault();
      this.submit(event);
    }
  }

  /** Whether what is written is too long for a message; then a line says so, and what can be done. */
  isTooLong() {
    const bytes = app.socket.excess(app.socket.frame(this.chat, this.field.value, this.files.named));
    this.tooLong.hidden = !bytes;
    if (!bytes) return false;
    const told = t("This is too long for a message: {size}, at most {most}. Shorten it, or attach it as a file.", { size: size(bytes), most: size(app.socket.limits.max_frame_bytes) });
    if (this.tooLong.firstChild?.data !== told) this.tooLong.replaceChildren(told, " ", h("button", { type: "button", onclick: () => this.attachText() }, t("Attach as a file")));
    return true;
  }

  attachText() {
    const text = this.field.value;
    this.files.attach(new File([text], "text.txt", { type: "text/plain" }), () => {
      if (this.field.value !== text) return;
      this.field.value = "";
      this.typed();
      this.field.focus();
    });
  }

  takeBack(frame) {
    this.field.value = draftOf(this.chat);
    (frame.files || []).forEach((file) => this.files.keep(file));
    this.typed();
    this.showPending();
  }

  submit(event) {
    event.preventDefault();
    const text = this.field.value;
    if (this.files.busy) return toast(t("A file is still being uploaded."));
    if (!text.trim() && !this.files.named.length) return;
    if (this.isTooLong()) return;
    this.live.querySelectorAll(".shown").forEach((each) => each.remove());
    const shows = !this.files.named.length && this.commands?.(text); // stored nowhere
    if (!shows && this.starts) return this.starts(event);
    if (!shows) app.socket.send(this.chat, text, this.files.named);
    this.files.clear();
    this.field.value = "";
    this.typed();
    if (shows) return this.follow();
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
    const live = frame.role === "assistant" && this.answer?.turn === frame.turn && this.answer;
    if (live?.rest && !this.detached && frame.content.trim()) {
      this.put(frame, live);
      live.keep(frame.content);
    }
    if (frame.role === "assistant") this.hideLive();
    if (!this.detached) this.put(frame);
    if (frame.role === "assistant") this.heard.textContent = spoken(frame.content);
    if (live) live.row = this.rows.get(frame.seq);
    if (live?.thinking) live.row?.prepend(live.thinking.node);
    if (frame.role === "system") this.know(); // perhaps another model
    this.showPending();
    this.follow();
  },
  async ack(frame) {
    this.showPending();
    if (this.detached || this.rows.has(frame.seq)) return;
    this.body.classList.add("early"); // an answer is not shown before what it answers: it would be pushed down
    const page = await get(`${chatPath(this.chat)}/messages`, { after: Math.max(0, frame.seq - 1), limit: 1 }).catch(() => null);
    this.body.classList.remove("early");
    page?.messages.forEach((message) => this.put(message));
    this.follow();
  },
  delta(frame) {
    const live = this.showLive(frame.turn);
    live.thinking?.end();
    if (frame.offset < live.cut) live.takeBack();
    const text = live.node.data;
    const kept = frame.offset >= live.length ? text : Array.from(text).slice(0, frame.offset - live.cut).join("");
    live.length = frame.offset + Array.from(frame.text).length;
    if (kept === text) live.node.appendData(frame.text);
    else live.node.data = kept + frame.text;
    this.setState(t("answering"), true);
    this.follow();
  },
  rendered(frame) {
    const live = frame.seq ? this.rows.get(frame.seq)?.live : this.answer;
    if (live?.turn === frame.turn) later("rendering", "show", live, frame);
  },
  thinking(frame) {
    const live = this.showLive(frame.turn);
    opened("thinking").then((view) => (this.answer === live || live.row) && view.think(live, frame));
  },
  tool(frame) {
    this.answer?.thinking?.end();
    later("tools", "used", this.body, frame);
    this.setState(t(frame.state === "started" ? "waiting for a tool" : "thinking"), true);
  },
  variant() {
    this.varied = true;
    if (!this.body.querySelector(".edited textarea:focus")) this.load();
  },
  caught_up(frame) {
    if ((frame.branched || 0) !== this.branched) this.load();
    this.hideLive(true);
  },
  status(frame) {
    const words = { waiting: t("waiting"), thinking: t(frame.doing || "thinking"), answering: t("answering") };
    this.setState(words[frame.state] || "", ["thinking", "answering"].includes(frame.state));
    if (frame.ended) {
      if (this.varied && !this.detached) this.load();
      this.varied = false;
      this.hideLive(true);
    }
    if (frame.state !== "failed") this.live.querySelector(".retry")?.remove();
    else if (!frame.ended) this.fail(said(frame.details?.message ?? "", frame.details?.code)); // an error frame told that one
  },
  chat() { this.know(); },
  approval(frame) {
    this.showApproval(frame);
    this.setState(t("waiting for your answer"), true);
  },
  approval_ended(frame) {
    this.live.querySelector(`[data-approval="${frame.id}"]`)?.replaceChildren(t(frame.outcome));
    this.setState(t("waiting for a tool"), true);
  },
  error(frame) {
    if (frame.code === "seq_ahead") return this.load();
    if (frame.turn) this.fail(said(frame.message, frame.code));
    else if (!frame.retryable) this.live.append(h("section.error", { role: "alert" }, said(frame.message, frame.code)));
    this.showPending();
    this.follow();
  },
};

const TOOLS = ["tool_call", "tool_result"];

/** A stored message; `changed` is called when something was forgotten. `live`: what of it is shown already. */
function messageRow(chat, message, changed, live) {
  const { content, kind, role } = message, isAnswer = role === "assistant", isSystem = role === "system";
  const row = Object.assign(live?.article || h("article"), { className: `${role} ${kind}`, ariaBusy: null });
  row.dataset.seq = message.seq;
  if (kind === "session_break") {
    row.append(h("p.hint", t("A fresh start.")));
    return row;
  }
  if (kind === "tool_result" || (kind === "tool_call" && !content.trim())) return row;
  const cite = () => message.context_used?.passages && later("citations", "cite", row, text, message.context_used);
  const done = () => { cite(); row.closest("klaw-chat")?.follow(); };
  const text = live?.text || (isAnswer ? markdown(content, done)
    : h("div.text.plain", { dir: "auto" }, isSystem ? content.split("\n").map((line) => said(line)).join("\n") : content));
  text.hidden = !content;
  const [shown, more] = variantButtons(row, chat, message);
  const footer = h("footer", { hidden: Boolean(live) }, h("time", { dateTime: message.created_at }, when(message.created_at)),
    content && !isSystem && iconButton("copy", t("Copy"), () => later("copying", "copy", content)),
    message.transcribed && h("span", t("transcribed")),
    message.task && h("a", { href: "#/tasks" }, `${t("task")} ${message.task}`),
    isAnswer && message.turn && h("button.quiet", () => later("made_from", "showMadeFrom", chat, message.turn, changed),
      t("Why this answer")),
    shown, content && !isSystem && menu(t("More"), [...more, [t("Read aloud"), () => later("voice", "speak", row, chat), () => isAnswer && app.speaks], [content.startsWith("⏰") ? t("Snooze") : t("Remind me"),
      () => later("tasks", "remind", content.replace(/^⏰.*?: /, ""), chat)],
    [t("Forget"), () => later("forgetting", "forgetting", message.id, changed)]]));
  row.append(...(live ? [] : [text]), message.files ? shownFiles(message.files) : "", footer);
  if (live) Object.assign(row, { live: Object.assign(live, { done, footer }) });
  return row;
}

/** Markdown as one would read it aloud. */
const spoken = (text) => text.replace(/!?\[([^\]]*)\]\([^)]*\)/g, "$1").replace(/[*_`#>|~]+/g, " ");
customElements.define("klaw-chat", Chat);
