// An answer while it comes: finished blocks stay, the open one is made anew, the rest is hidden, unless it takes long.

import { h, markdown, parsed, setRendered, t } from "../page.js";

const LATE_MS = 1500;

export function show(live, { offset, end, html, rest, shown, seq }) {
	if (!live.rest) begin(live);
	if (!offset) clear(live);
	if (offset !== live.end) return;
	if (html) {
		const made = h("div"), open = h("div.open"); // a new one, since it stands elsewhere
		setRendered(made, html);
		live.open.replaceWith(...made.childNodes, open);
		Object.assign(live, { open, html: "", end });
	}
	if (live.html !== rest) setRendered(live.open, live.html = rest);
	if (shown > live.cut) {
		live.node.data = Array.from(live.node.data).slice(shown - live.cut).join("");
		live.cut = shown;
	}
	live.rest.hidden = true;
	clearTimeout(live.late);
	if (seq) finish(live);
	else live.late = setTimeout(() => { live.rest.hidden = false; }, LATE_MS);
}

function begin(live) {
	const { text, node } = live;
	Object.assign(live, { end: 0, html: "", open: h("div.open"), rest: h("div.plain", { dir: "auto" }, node),
		takeBack() { // the text comes again from its beginning
			live.rest = null;
			live.cut = 0;
			node.data = "";
			text.replaceChildren(node);
			text.classList.add("plain");
		},
		keep(content) { // it is stored: the last frame completes it, or it is rendered as a whole
			live.last = setTimeout(() => {
				text.replaceChildren(markdown(content, live.done));
				live.footer.hidden = false;
			}, 3 * LATE_MS);
		} });
	text.classList.remove("plain");
	text.removeAttribute("dir");
	text.replaceChildren(live.open, live.rest);
}

function clear(live) {
	while (live.text.firstChild !== live.open) live.text.firstChild.remove();
	live.end = 0;
}

function finish(live) {
	clearTimeout(live.last);
	live.open.remove();
	live.rest.remove();
	live.footer.hidden = false; // before, it would be pushed down by what comes
	live.done();
}

/** Show a piece, also of an answer that was complete before this module was loaded. */
export function think(live, frame) {
	if (!live.thinking || (live.thinking.over && !live.row)) {
		live.thinking = thinking();
		if (live.row) live.row.prepend(live.thinking.node);
		else live.text.before(live.thinking.node);
	}
	live.thinking.take(frame);
	if (live.length || live.row) live.thinking.end();
}

function thinking() {
	const began = performance.now(), head = h("summary"), said = document.createTextNode("");
	const node = h("details.fold.thinking", head, h("div.text.plain", { tabIndex: 0 }, said));
	const tell = (words) => { head.textContent = t(words, { count: Math.round((performance.now() - began) / 1000) }); };
	const goesOn = () => tell("Thinking… {count} s");
	const timer = setInterval(() => (node.isConnected ? goesOn() : made.end()), 1000);
	let length = 0;
	const made = {
		node,
		over: false,
		take({ offset, text }) {
			if (length && offset !== length) said.appendData(offset ? " … " : "\n\n"); // pieces may be missing
			said.appendData(text);
			length = offset + Array.from(text).length;
		},
		end() {
			if (made.over) return;
			made.over = true;
			clearInterval(timer);
			tell("Thought for {count} s");
		},
	};
	goesOn();
	return made;
}

const find = (place, id) => place.querySelector(`.call[data-call="${CSS.escape(id)}"]`);
const pre = (text, given) => h("pre", { tabIndex: 0, dir: "auto", ...given }, text);

function line({ id, name, title, about, arguments: given = "" }) {
	return h("details.fold.call", { "data-call": id },
		h("summary", title ? t(title) : name, about && `: ${about}`, h("span.how")), pre(readable(given)));
}

const readable = (text) => (parsed(text) === text ? text : JSON.stringify(parsed(text), null, 2));

function mark(made, state) {
	made.dataset.state = state;
	const words = { started: "in progress", done: "finished", failed: "did not work" }[state];
	made.querySelector(".how").textContent = ` · ${t(words)}`;
}

export function used(body, { call, state }) {
	const made = find(body, call);
	if (made) mark(made, state);
}

/** Each call stands once, with its result, in whichever order they come. */
export function fill(body, row, { kind, calls = [{}], content }) {
	const results = [...body.querySelectorAll(".tool_result")];
	if (kind === "tool_call") {
		for (const call of calls) {
			const made = line(call), result = results.find((each) => each.dataset.call === call.id);
			row.append(made);
			if (result) join(made, result);
		}
		return;
	}
	const [{ id, name, failed }] = calls, made = find(body, id);
	Object.assign(row.dataset, { call: id, state: failed ? "failed" : "done" });
	row.append(h("details.fold", h("summary", `${t("result")} ${name}`), pre(content)));
	if (made) join(made, row);
}

function join(made, result) {
	const { textContent } = result.querySelector("pre");
	if (!made.querySelector(".result")) made.append(pre(textContent, { className: "result" }));
	mark(made, result.dataset.state);
	result.hidden = true;
}
