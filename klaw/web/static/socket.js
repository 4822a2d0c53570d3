// The WebSocket (docs/protocol.md): resumes every watched chat, and keeps what was typed until the server has it.

const UNSENT = "klaw.unsent.", DRAFT = "klaw.draft.", FILES = "klaw.files.";

export const draftOf = (chat) => localStorage.getItem(DRAFT + chat) || "";
export const keepDraft = (chat, text) => keep(DRAFT + chat, text);

export const filesOf = (chat) => JSON.parse(localStorage.getItem(FILES + chat) || "[]");
export const keepFiles = (chat, files) => keep(FILES + chat, files.length ? JSON.stringify(files) : "");

/** What does not fit is there as long as the page is. */
function keep(key, value) {
	localStorage.removeItem(key);
	try {
		if (value) localStorage.setItem(key, value);
	} catch { /* full */ }
}

export class Socket extends EventTarget {
	chats = new Map();
	online = false;
	degraded = [];
	hint = "";
	limits = {};
	attempt = 0;

	constructor() {
		super();
		this.unsent = Object.keys(localStorage).filter((key) => key.startsWith(UNSENT)).sort()
			.map((key) => JSON.parse(localStorage.getItem(key)));
		addEventListener("online", () => this.connect());
		document.addEventListener("visibilitychange", () => document.hidden || this.connect());
		this.connect();
	}

	connect() {
		if (this.socket?.readyState <= WebSocket.OPEN) return;
		clearTimeout(this.timer);
		const socket = this.socket = new WebSocket(new URL("ws", location).href.replace("http", "ws"));
		socket.onopen = () => this.raw({ type: "hello", version: 2, client: "page", html: true,
			chats: Object.fromEntries(this.chats) });
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
		const { type, id, code, details } = frame;
		if (type === "welcome") {
			const { degraded, hint, limits } = frame;
			Object.assign(this, { attempt: 0, degraded, hint, limits });
			this.unsent.filter((each) => this.excess(each)).forEach((each) => this.takeBack(each));
			this.setOnline(true);
			this.unsent.forEach((each) => this.raw(each));
		}
		if (["message", "ack"].includes(type)) {
			this.chats.set(frame.chat, Math.max(frame.seq, this.chats.get(frame.chat) ?? 0));
			this.settle(id);
		}
		if (type === "error" && id) {
			const again = () => this.unsent.filter((each) => each.id === id).forEach((each) => this.raw(each));
			if (frame.retryable) setTimeout(again, frame.retry_after_ms || 1000);
			else this.settle(id);
		}
		if (code === "seq_ahead") this.chats.set(frame.chat, 0);
		if (type === "notice" && details) {
			this.degraded = this.degraded.filter((each) => each.code !== code);
			if (details.state === "degraded") this.degraded.push({ code, text: frame.text });
		}
		this.say("frame", frame);
	}

	/** Asked again, it also brings what is open now: state, permissions, answer so far. */
	watch(chat, seq) {
		this.chats.set(chat, seq);
		this.raw({ type: "watch", chat, seq }); // also before the welcome: hello, already sent, did not name it
	}

	frame(chat, text, files, model) {
		return { type: "send", id: newId(), chat, text, ...(files?.length && { files }), ...(model && { model }),
			...(files?.some((each) => each.transcribed) && { transcribed: true }) };
	}

	/** The bytes of a frame, if these are more than the server takes, else 0: a longer one closes the connection. */
	excess(frame) {
		const most = this.limits.max_frame_bytes, text = frame.text.slice(0, most); // of megabytes the size is an estimate
		const { length } = new TextEncoder().encode(JSON.stringify({ ...frame, text }));
		const bytes = length * (frame.text.length / text.length || 1);
		return bytes > most ? bytes : 0;
	}

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
		this.ask(frame);
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

/** Later ones sort behind. `crypto.randomUUID` needs a secure context. */
function newId() {
	const random = Array.from(crypto.getRandomValues(new Uint8Array(6)), (byte) => byte.toString(16).padStart(2, "0"));
	return Date.now().toString(16).padStart(12, "0") + random.join("");
}
