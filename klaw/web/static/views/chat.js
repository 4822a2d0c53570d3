// One chat. Only a window of a long one is in the document; the rest is loaded while one scrolls.

import {
	app, backTo, button, chatPath, copy, fit, get, h, icon, iconButton, isEnter, isFine, keepPlace, later, mainButton,
	markdown, menu, opened, said, size, t, toast, when,
} from "../page.js";
import { draftOf, keepDraft } from "../socket.js";
import { beginning, chatMenu, temporaryMark, titleOf } from "./chat_actions.js";
import { setSeen } from "./chats.js";
import { shownFiles } from "./files.js";
import { variantButtons } from "./variants.js";

const PAGE = 50;
const MOST = 300;
const NEAR = 80;
const TOOLS = ["tool_call", "tool_result"];

class Chat extends HTMLElement {
	chat = "";
	temporary = false;
	at = 0;
	starts = null; // sends the first message of a new chat

	connectedCallback() {
		this.rows = new Map();
		this.first = this.last = 0;
		this.detached = false;
		const { socket } = app, label = t("Write a message"), hidden = true;
		this.body = h("div.body");
		this.live = h("div.live");
		this.pending = h("div.pending");
		this.scroll = h("div.messages", { role: "log", ariaLive: "off", ariaLabel: t("Messages"), tabIndex: 0,
			onscroll: () => this.scrolled() }, this.body, this.live, this.pending);
		this.state = h("p.state", { role: "status" });
		this.heard = h("p.unseen", { role: "status" }); // by a screen reader: whole answers
		this.newest = iconButton("down", "The newest", () => this.load(), { hidden });
		this.field = h("textarea", { rows: 1, placeholder: label, ariaLabel: label, value: draftOf(this.chat),
			oninput: () => this.typed(), onkeydown: (event) => this.key(event) });
		this.stop = iconButton("stop", "Stop", () => socket.ask({ type: "stop", chat: this.chat }), { hidden });
		this.files = h("klaw-files", { chat: this.chat, field: this.field });
		this.files.listen(this);
		this.composer = h("form.composer", { onsubmit: (event) => this.submit(event) }, this.field,
			iconButton("send", "Send", null, { type: "submit", className: "icon main" }));
		this.offline = h("p.offline", { role: "status" }, t("Offline: what you write is kept and sent later."));
		this.offline.hidden = socket.online || !socket.attempt; // not while it connects for the first time
		this.tooLong = h("p.offline", { role: "alert", hidden });
		this.heading = h("h1", titleOf({ name: this.chat, temporary: this.temporary }));
		this.known = h("span.known");
		this.model = h("button.quiet.model", { hidden, title: t("Model"),
			onclick: () => later("models", "choose", this.chat) });
		this.menu = h("span.menu-place");
		this.replaceChildren(h("header", backTo("#/chats", "Chats"), this.heading, this.known, this.model, this.menu),
			this.scroll, this.newest, h("div.doing", this.state, this.stop), this.offline, this.tooLong, this.files,
			this.composer, this.heard);
		this.composer.prepend(this.files.button);
		this.grows = new ResizeObserver(() => this.follow());
		for (const each of [this.scroll, this.body, this.live]) this.grows.observe(each);
		this.gone = new AbortController();
		const listen = (event, take, place = socket) => place.addEventListener(event, take, this.gone);
		listen("returned", ({ detail }) => detail.chat === this.chat && this.takeBack(detail));
		listen("frame", ({ detail }) => detail.chat === this.chat && TAKES[detail.type]?.call(this, detail));
		listen("online", ({ detail }) => {
			this.offline.hidden = detail;
			if (!detail) this.setState("", false);
			else if (!this.written) this.know();
		});
		listen("visibilitychange", () => this.read(), document);
		this.typed();
		this.know();
		this.show(this.at);
		if (!this.at && isFine()) this.field.focus({ preventScroll: true });
	}

	/** Until it is known there is no menu, which would be that of another state. */
	async know() {
		const asked = [get("/chats", { chat: this.chat }), get(`${chatPath(this.chat)}/models`)];
		const [found, models] = await Promise.all(asked.map((each) => each.catch(() => null)));
		if (!this.isConnected) return;
		if (models) {
			this.model.hidden = false;
			this.model.textContent = models.this_chat.split("/").pop();
			this.model.ariaLabel = t("Model", models.this_chat);
			app.speaks = models.speaks;
			if (models.hears) later("voice", "listen", this);
		}
		if (found) this.named(found.chats[0]);
	}

	named(chat = { name: this.chat, title: "", temporary: this.temporary }) {
		const { title, archived, pinned, temporary, bases = [] } = chat;
		const written = JSON.stringify([title, archived, pinned, temporary, !chat.last_seq, bases]);
		// Nobody's menu closes under the finger.
		if (written === this.written || this.menu.querySelector(":popover-open")) return;
		const changed = () => {
			this.know();
			this.closest("klaw-chats")?.refresh();
		};
		this.written = written;
		this.heading.textContent = titleOf(chat);
		this.known.replaceChildren(...temporaryMark(chat, changed),
			...bases.map((base) => h("a", { href: `#/knowledge/${base}`, title: t("Knowledge") }, icon("knowledge"))));
		this.menu.replaceChildren(chatMenu(chat, changed, true));
	}

	disconnectedCallback() {
		this.gone.abort();
		this.grows.disconnect();
		clearTimeout(this.timer);
	}

	async show(seq) {
		await this.load(seq ? { before: seq + PAGE / 2 } : {});
		const row = this.rows.get(seq);
		if (!row) return;
		row.scrollIntoView({ block: "center" });
		row.classList.add("found");
		row.tabIndex = -1;
		row.focus({ preventScroll: true });
	}

	messages(query) {
		return get(`${chatPath(this.chat)}/messages`, { limit: PAGE, ...query });
	}

	async load(query = {}) {
		const asked = this.asked = {};
		let page = { messages: [] };
		try {
			if (!this.starts) page = await this.messages(query);
		} catch (error) {
			if (asked !== this.asked) return;
			if (error.code !== "unknown_chat") {
				this.state.textContent = error.message;
				this.showPending();
				if (error.status && error.status < 429) return;
				this.timer = setTimeout(() => this.isConnected && this.load(query), 2000);
				return;
			}
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
		const { seq, kind } = message;
		if (this.rows.has(seq)) return;
		this.body.querySelector(".empty")?.remove();
		const row = messageRow(this.chat, message, () => this.load(), live), place = live?.place || row;
		if (TOOLS.includes(kind)) later("answer", "fill", this.body, row, message);
		this.rows.set(seq, row);
		let before = seq < this.first ? null : this.body.lastElementChild;
		while (before && !(Number(before.dataset.seq) < seq)) before = before.previousElementSibling; // what grows has none
		if (live) {
			place.dataset.seq = seq;
			place.className = "";
		}
		if (before && before.nextElementSibling !== place) before.after(place);
		else if (!before) this.body.prepend(place);
		this.first = Math.min(this.first || seq, seq);
		this.last = Math.max(this.last, seq);
	}

	async scrolled() {
		const { scrollTop, scrollHeight, clientHeight } = this.scroll;
		const isAtEnd = scrollHeight - scrollTop - clientHeight < NEAR;
		// What grows below does not take one away from the end.
		if (isAtEnd || this.detached || scrollTop < this.top) this.atEnd = isAtEnd;
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
			const { messages, more } = await this.messages(query);
			keepPlace(this.scroll, this.body.children, () => {
				if (query.before) messages.reverse();
				messages.forEach((message) => this.put(message));
				if (query.before) {
					this.more = more;
					this.trim((seqs) => seqs.slice(MOST));
				} else {
					this.detached = more;
					this.trim((seqs) => seqs.slice(0, Math.max(0, seqs.length - MOST)));
				}
			});
			if (query.after && !more) app.socket.watch(this.chat, this.last);
			this.newest.hidden = !this.detached;
		} catch (error) {
			toast(error.message);
		}
		this.loading = false;
	}

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

	follow() {
		if (!this.atEnd || this.detached || this.following) return;
		this.following = requestAnimationFrame(() => {
			this.following = 0;
			if (this.atEnd && !this.detached) this.toEnd();
		});
	}

	showLive(turn) {
		if (this.answer?.turn === turn) return this.answer;
		const node = document.createTextNode(""), text = h("div.text.plain", { dir: "auto" }, node);
		// Its element stays once the answer is stored: to lay a long one out anew takes longer than a frame.
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
		this.pending.replaceChildren(...unsent.map(({ text, files }) => h("article.user.unsent",
			text && h("div.text.plain", text), files && shownFiles(files), h("footer", t("not sent yet")))));
	}

	showApproval({ id, tool, what }) {
		if (this.live.querySelector(`[data-approval="${id}"]`)) return;
		const answer = (allow) => () => {
			app.socket.ask({ type: "approve", id, allow });
			this.field.focus();
		};
		// Where a command runs stands before it, in Klaw's words.
		const words = (_, where) => `[${where.split(": ").map((each) => said(each)).join(": ")}]`;
		const shown = tool === "host_exec" ? what.replace(/^\[([^\]]*)\]/, words) : what;
		const section = h("section.approval", { role: "alertdialog", ariaLabel: tool, "data-approval": id },
			h("strong", tool), h("pre", { tabIndex: 0 }, shown),
			h("div.buttons", button("Refuse", answer(false)), mainButton("Allow", answer(true))));
		this.live.append(section);
		this.heard.textContent = `${t("Allow")}? ${tool}: ${shown}`;
		section.scrollIntoView({ block: "nearest" });
	}

	fail(why) {
		this.live.querySelector(".retry")?.remove();
		this.live.append(h("section.error.retry", { role: "alert" }, why, " ",
			button("Retry", () => app.socket.send(this.chat, "/retry"))));
		this.follow();
	}

	setState(text, running) {
		if (this.state.textContent !== text) this.state.textContent = text;
		this.stop.hidden = !running;
	}

	write(text) {
		this.field.value = text;
		this.typed();
		this.field.focus();
	}

	typed() {
		const { field } = this;
		this.isTooLong();
		keepDraft(this.chat, field.value);
		fit(field);
		field.dir = field.value.length < 1e5 ? "auto" : ""; // of megabytes the browser takes minutes
		if (this.completing || /^\/\w*$/.test(field.value)) later("commands", "complete", this);
	}

	key(event) {
		if (this.completing?.key(event)) return event.preventDefault();
		const { key, ctrlKey, metaKey, shiftKey } = event;
		const sends = ctrlKey || metaKey || (!shiftKey && isFine()); // a phone has no other key for a new line
		if (key === "ArrowUp" && !this.field.value) [...this.body.querySelectorAll("button.edit")].pop()?.click();
		if (sends && isEnter(event)) this.submit(event);
	}

	isTooLong() {
		const bytes = app.socket.excess(app.socket.frame(this.chat, this.field.value, this.files.named));
		this.tooLong.hidden = !bytes;
		if (!bytes) return false;
		const told = t("This is too long for a message: {size}, at most {most}. Shorten it, or attach it as a file.",
			{ size: size(bytes), most: size(app.socket.limits.max_frame_bytes) });
		if (this.tooLong.firstChild?.data !== told) {
			this.tooLong.replaceChildren(told, " ", button("Attach as a file", () => this.attachText()));
		}
		return true;
	}

	attachText() {
		const text = this.field.value;
		this.files.attach(new File([text], "text.txt", { type: "text/plain" }), () => {
			if (this.field.value === text) this.write("");
		});
	}

	takeBack({ files = [] }) {
		this.field.value = draftOf(this.chat);
		files.forEach((file) => this.files.keep(file));
		this.typed();
		this.showPending();
	}

	submit(event) {
		event.preventDefault();
		const text = this.field.value, { socket } = app, { named, busy } = this.files;
		if (busy) return toast(t("A file is still being uploaded."));
		if ((!text.trim() && !named.length) || this.isTooLong()) return;
		this.live.querySelectorAll(".shown").forEach((each) => each.remove());
		const shows = !named.length && this.commands?.(text); // stored nowhere
		if (!shows && this.starts) return this.starts(event);
		if (!shows) socket.send(this.chat, text, named);
		this.files.clear();
		this.field.value = "";
		this.typed();
		if (shows) return this.follow();
		if (this.detached) return this.load();
		this.showPending();
		if (!socket.chats.has(this.chat)) socket.watch(this.chat, 0);
		this.toEnd();
	}
}

const TAKES = {
	message(frame) {
		const { role, content, seq } = frame, isAnswer = role === "assistant";
		const live = isAnswer && this.answer?.turn === frame.turn && this.answer;
		if (live?.rest && !this.detached && content.trim()) {
			this.put(frame, live);
			live.keep(content);
		}
		if (isAnswer) this.hideLive();
		if (!this.detached) this.put(frame);
		if (isAnswer) this.heard.textContent = spoken(content);
		if (live) live.row = this.rows.get(seq);
		if (live?.thinking) live.row?.prepend(live.thinking.node);
		if (role === "system") this.know(); // perhaps another model
		this.showPending();
		this.follow();
	},
	async ack({ seq }) {
		this.showPending();
		if (this.detached || this.rows.has(seq)) return;
		this.body.classList.add("early"); // an answer would be pushed down by what it answers
		const page = await this.messages({ after: Math.max(0, seq - 1), limit: 1 }).catch(() => null);
		this.body.classList.remove("early");
		page?.messages.forEach((message) => this.put(message));
		this.follow();
	},
	delta({ turn, offset, text: piece }) {
		const live = this.showLive(turn);
		live.thinking?.end();
		if (offset < live.cut) live.takeBack();
		const text = live.node.data;
		const kept = offset >= live.length ? text : Array.from(text).slice(0, offset - live.cut).join("");
		live.length = offset + Array.from(piece).length;
		if (kept === text) live.node.appendData(piece);
		else live.node.data = kept + piece;
		this.setState(t("answering"), true);
		this.follow();
	},
	rendered(frame) {
		const live = frame.seq ? this.rows.get(frame.seq)?.live : this.answer;
		if (live?.turn === frame.turn) later("answer", "show", live, frame);
	},
	thinking(frame) {
		const live = this.showLive(frame.turn);
		opened("answer").then((view) => (this.answer === live || live.row) && view.think(live, frame));
	},
	tool(frame) {
		this.answer?.thinking?.end();
		later("answer", "used", this.body, frame);
		this.setState(t(frame.state === "started" ? "waiting for a tool" : "thinking"), true);
	},
	variant() {
		this.varied = true;
		if (!this.body.querySelector(".edited textarea:focus")) this.load();
	},
	caught_up({ branched = 0 }) {
		if (branched !== this.branched) this.load();
		this.hideLive(true);
	},
	status({ state, doing, ended, details }) {
		const words = { waiting: "waiting", thinking: doing || "thinking", answering: "answering" }[state];
		this.setState(t(words || ""), ["thinking", "answering"].includes(state));
		if (ended) {
			if (this.varied && !this.detached) this.load();
			this.varied = false;
			this.hideLive(true);
		}
		if (state !== "failed") this.live.querySelector(".retry")?.remove();
		else if (!ended) this.fail(said(details?.message ?? "", details?.code)); // an error frame told that one
	},
	chat() { this.know(); },
	approval(frame) {
		this.showApproval(frame);
		this.setState(t("waiting for your answer"), true);
	},
	approval_ended({ id, outcome }) {
		this.live.querySelector(`[data-approval="${id}"]`)?.replaceChildren(t(outcome));
		this.setState(t("waiting for a tool"), true);
	},
	error({ code, turn, message, retryable }) {
		if (code === "seq_ahead") return this.load();
		if (turn) this.fail(said(message, code));
		else if (!retryable) this.live.append(h("section.error", { role: "alert" }, said(message, code)));
		this.showPending();
		this.follow();
	},
};

/** `changed` is called when something was forgotten. `live`: what of it is shown already. */
function messageRow(chat, message, changed, live) {
	const { id, seq, content, kind, role, turn, task, files, transcribed, created_at: at } = message;
	const used = message.context_used;
	const isAnswer = role === "assistant", isSystem = role === "system", isSaid = content && !isSystem;
	const row = Object.assign(live?.article || h("article"), { className: `${role} ${kind}`, ariaBusy: null });
	row.dataset.seq = seq;
	if (kind === "session_break") row.append(h("p.hint", t("A fresh start.")));
	if (["session_break", "tool_result"].includes(kind) || (kind === "tool_call" && !content.trim())) return row;
	const done = () => {
		if (used?.passages) later("citations", "cite", row, text, used);
		row.closest("klaw-chat")?.follow();
	};
	const plain = isSystem ? content.split("\n").map((line) => said(line)).join("\n") : content;
	const text = live?.text || (isAnswer ? markdown(content, done) : h("div.text.plain", { dir: "auto" }, plain));
	text.hidden = !content;
	const [variants, entries] = variantButtons(row, chat, message);
	const why = () => later("made_from", "showMadeFrom", chat, turn, changed);
	const remind = () => later("tasks", "remind", content.replace(/^⏰.*?: /, ""), chat);
	const footer = h("footer", { hidden: Boolean(live) }, h("time", { dateTime: at }, when(at)),
		isSaid && iconButton("copy", "Copy", () => copy(content)),
		transcribed && h("span", t("transcribed")),
		task && h("a", { href: "#/tasks" }, `${t("task")} ${task}`),
		isAnswer && turn && button("Why this answer", why, { className: "quiet" }),
		variants, isSaid && menu(t("More"), () => [...entries,
			isAnswer && app.speaks && ["Read aloud", () => later("voice", "speak", row, chat)],
			[content.startsWith("⏰") ? "Snooze" : "Remind me", remind],
			["Forget", () => later("forgetting", "forgetting", id, changed)]]));
	row.append(...(live ? [] : [text]), files ? shownFiles(files) : "", footer);
	if (live) row.live = Object.assign(live, { done, footer });
	return row;
}

/** Markdown as one would read it aloud. */
const spoken = (text) => text.replace(/!?\[([^\]]*)\]\([^)]*\)/g, "$1").replace(/[*_`#>|~]+/g, " ");

customElements.define("klaw-chat", Chat);
