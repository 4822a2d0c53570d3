// The WebSocket of the page (docs/protocol.md): connects again by itself, resumes every watched chat where it was, and
// keeps what was typed until the server has acknowledged it, also when the page is closed.

const UNSENT = "klaw.unsent.", DRAFT = "klaw.draft.", FILES = "klaw.files.";

/** What was typed in a chat and not sent. */
export const draftOf = (chat) => localStorage.getItem(DRAFT + chat) || "";
export const keepDraft = (chat, text) => keep(DRAFT + chat, text);

/** The files that go with the next message of a chat. */
export const filesOf = (chat) => JSON.parse(localStorage.getItem(FILES + chat) || "[]");
export const keepFiles = (chat, files) => keep(FILES + chat, files.length ? JSON.stringify(files) : "");

/** The browser keeps some 5 MB; what does not fit is there as long as the page is. */
function keep(key, value) {
  localStorage.removeItem(key);
  try {
    if (value) localStorage.setItem(key, value);
  } catch { /* full */ }
}

export class Socket extends EventTarget {
  constructor() {
    super();
    this.chats = new Map();
    this.unsent = Object.keys(localStorage).filter((key) => key.startsWith(UNSENT)).sort()
      .map((key) => JSON.parse(localStorage.getItem(key)));
    this.online = false;
    this.degraded = [];
    this.hint = "";
    this.limits = {};
    this.attempt = 0;
    addEventListener("online", () => this.connect());
    document.addEventListener("visibilitychange", () => document.hidden || this.connect());
    this.connect();
  }

  connect() {
    if (this.socket?.readyState <= WebSocket.OPEN) return;
    clearTimeout(this.timer);
    const socket = this.socket = new WebSocket(`ws${location.protocol.slice(4)}//${location.host}/ws`); // https: → wss:
    socket.onopen = () => this.raw({ type: "hello", version: 2, client: "page", html: true, chats: Object.fromEntries(this.chats) });
    socket.onmessage = (event) => this.take(JSON.parse(event.data));
    socket.onclose = (event) => {
      if (this.socket !== socket) return;
      this.setOnline(false);
      if (event.code === 4401 || event.code === 4406) return this.say("unauthorized"); // 4406: the server was updated
      this.attempt += 1;
      this.timer = setTimeout(() => this.connect(), Math.min(5000, 250 * 2 ** this.attempt) * (0.5 + Math.random()));
    };
  }

  take(frame) {
    if (frame.type === "welcome") {
      this.attempt = 0;
      this.degraded = frame.degraded;
      this.hint = frame.hint || "";
      this.limits = frame.limits;
      this.unsent.filter((each) => this.excess(each)).forEach((each) => this.takeBack(each));
      this.setOnline(true);
      this.unsent.forEach((each) => this.raw(each));
    }
    if (frame.type === "message" || frame.type === "ack") {
      const known = this.chats.get(frame.chat) ?? 0;
      if (frame.seq > known) this.chats.set(frame.chat, frame.seq);
      this.settle(frame.id);
    }
    if (frame.type === "error" && frame.id) {
      if (frame.retryable) setTimeout(() => this.unsent.filter((each) => each.id === frame.id).forEach((each) => this.raw(each)), frame.retry_after_ms || 1000);
      else this.settle(frame.id);
    }
    if (frame.type === "error" && frame.code === "seq_ahead") this.chats.set(frame.chat, 0);
    if (frame.type === "notice" && frame.details) {
      const others = this.degraded.filter((each) => each.code !== frame.code);
      this.degraded = frame.details.state === "degraded" ? [...others, { code: frame.code, text: frame.text }] : others;
    }
    this.say("frame", frame);
  }

  /** Watch a chat from after `seq`. Asked again it also brings what is open now: its state, permissions, the answer so far. */
  watch(chat, seq) {
    this.chats.set(chat, seq);
    this.raw({ type: "watch", chat, seq }); // also before the welcome: hello, already sent, did not name it
  }

  /** What a message is sent as; `model` answers it in the place of the chat's. */
  frame(chat, text, files, model) {
    return { type: "send", id: newId(), chat, text, ...(files?.length && { files }), ...(model && { model }),
      ...(files?.some((each) => each.transcribed) && { transcribed: true }) };
  }

  /** How many bytes a frame has, if these are more than the server takes; else 0. A longer one closes the connection. */
  excess(frame) {
    const most = this.limits.max_frame_bytes, text = frame.text.slice(0, most); // of megabytes the size is an estimate
    const bytes = new TextEncoder().encode(JSON.stringify({ ...frame, text })).length * (frame.text.length / text.length || 1);
    return bytes > most ? bytes : 0;
  }

  /** Make a message that was not sent a draft again. */
  takeBack(frame) {
    const { id, chat, text, files = [] } = frame;
    this.settle(id);
    keepDraft(chat, [draftOf(chat), text].filter(Boolean).join("\n\n"));
    keepFiles(chat, [...filesOf(chat), ...files]);
    this.say("returned", frame);
  }

  send(chat, text, files, model) {
    const frame = this.frame(chat, text, files, model);
    this.unsent.push(frame);
    keep(UNSENT + frame.id, JSON.stringify(frame));
    if (this.online) this.raw(frame);
    return frame;
  }

  ask(frame) {
    if (this.online) this.raw(frame);
    return this.online;
  }

  settle(id) {
    this.unsent = this.unsent.filter((each) => each.id !== id);
    localStorage.removeItem(UNSENT + id);
  }

  raw(frame) {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(frame));
  }

  setOnline(online) {
    this.online = online;
    this.say("online", online);
  }

  say(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}

/** An id of a message; later ones sort behind. `crypto.randomUUID` exists only in a secure context, which a plain address of a home network is not. */
function newId() {
  const random = Array.from(crypto.getRandomValues(new Uint8Array(6)), (byte) => byte.toString(16).padStart(2, "0"));
  return Date.now().toString(16).padStart(12, "0") + random.join("");
}
