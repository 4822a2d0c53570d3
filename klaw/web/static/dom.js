// Text from users and models is always text. Names of buttons, fields and menus are given in English.

import { rendered, unreachable } from "./api.js";
import { t } from "./i18n.js";

/** An element with classes ("p.hint"). `given` may be left out, or be what a click does. */
export function h(name, given, ...children) {
	if (typeof given === "function") return h(name, { onclick: given }, ...children);
	if (given?.constructor !== Object) return h(name, {}, given, ...children);
	const [tag, ...classes] = name.split("."), made = document.createElement(tag);
	made.classList.add(...classes);
	for (const [key, value] of Object.entries(given)) {
		if (value === undefined || value === null || value === false) continue;
		if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
		else if (key in made && key !== "list") made[key] = value;
		else made.setAttribute(key, value === true ? "" : value);
	}
	made.append(...shown(children));
	return made;
}

export const shown = (content) => content.flat(Infinity).filter((each) => (each ?? false) !== false);

export function icon(sign) {
	const made = document.createElement("template");
	made.innerHTML = `<svg class="icon" aria-hidden="true"><use href="static/icons.svg#${sign}"/></svg>`;
	return made.content.firstChild;
}

export const iconButton = (sign, label, onclick, given) =>
	h(`button.icon.${sign}`, { type: "button", title: t(label), ariaLabel: t(label), onclick, ...given }, icon(sign));

/** A button; `of` names what it is about, for those who only hear it. */
export const button = (text, onclick, { of, ...given } = {}) => h("button", { type: "button", onclick,
	ariaLabel: of && t(text, of), "data-key": of ? `${of} ${text}` : text, ...given }, t(text));

export const mainButton = (text, onclick, given) => button(text, onclick, { className: "main", ...given });

export const backTo = (href, label) => h("a.back", { href, ariaLabel: t(label), title: t(label) }, icon("back"));

export const searchField = (label, given) =>
	h("input", { type: "search", placeholder: t(label), ariaLabel: t(label), ...given });

export const select = (choices, chosen, given) => h("select", given,
	choices.map(([value, text]) => h("option", { value, selected: value === chosen }, text)));

export const status = (...content) => h("p.hint", { role: "status" }, content);
export const failure = (error) => h("p.error", { role: "alert" }, error?.message ?? error);

export function setRendered(element, html) {
	element.innerHTML = html;
	for (const link of element.querySelectorAll("a")) link.target = "_blank";
	for (const wide of element.querySelectorAll("pre, table")) wide.tabIndex = 0;
	for (const block of element.querySelectorAll(".block")) {
		block.append(iconButton("copy", "Copy", () => copyBlock(block)));
	}
}

/** Copy a text, also without a secure context, which a plain address of a home network is not. */
export async function copy(text) {
	try {
		await navigator.clipboard.writeText(text);
	} catch {
		const field = h("textarea.unseen", { value: text }), place = document.activeElement;
		document.body.append(field);
		field.select();
		const copied = document.execCommand("copy");
		field.remove();
		place?.focus({ preventScroll: true });
		if (!copied) return toast(t("The browser does not allow copying."));
	}
	toast(t("Copied."), 1500);
}

function copyBlock(block) {
	const table = block.querySelector("table");
	const cellText = (cell) => cell.innerText.replace(/\s+/g, " ").trim();
	copy(table ? [...table.rows].map((row) => [...row.cells].map(cellText).join("\t")).join("\n")
		: block.querySelector("pre").innerText.trimEnd());
}

/** Whether there is a mouse, and so a keyboard. */
export const isFine = () => matchMedia("(pointer: fine)").matches;

// 229: an input method took it; Safari says so nowhere else.
export const isEnter = ({ key, keyCode }) => key === "Enter" && keyCode !== 229;

/** Make a field as high as its text, where CSS does not. */
export function fit(field) {
	if (CSS.supports("field-sizing", "content")) return;
	field.style.height = 0;
	field.style.height = `${field.scrollHeight}px`;
}

/** A function that does something once it was not called for `ms`. */
export function settled(ms, act) {
	let timer;
	return () => {
		clearTimeout(timer);
		timer = setTimeout(act, ms);
	};
}

/** The text as it is, until it is rendered; then `done` is called. */
export function markdown(text, done = () => null) {
	const made = h("div.text.plain", { dir: "auto" }, text);
	if (/[*_`#>|[\]~\-\d\\$/]/.test(text)) {
		rendered(text).then((html) => {
			made.classList.remove("plain");
			made.removeAttribute("dir");
			setRendered(made, html);
			done();
		}, () => null);
	}
	return made;
}

let over = []; // what is open over the view: Back closes the last of it before it leaves the view
let depth = history.state?.over || 0; // of the entry of the history, with those closed otherwise
let address = location.href;

// The event of closing comes later.
const isOpen = ({ element }) => element.isConnected && (element.open ?? element.matches(":popover-open"));

/** Let Back close what was just opened. Returns what is to be called when it is closed. */
function opensOver(element, close) {
	const mine = { element, close };
	over = [...over.filter(isOpen), mine];
	if (depth < over.length) {
		depth = over.length;
		if (!history.state) history.replaceState({ over: 0 }, "");
		history.pushState({ over: depth }, "");
	}
	return () => { over = over.filter((each) => each !== mine); };
}

addEventListener("popstate", ({ state }) => {
	const before = depth, stays = location.href === address;
	depth = state?.over || 0;
	address = location.href;
	over = over.filter(isOpen);
	if (over.length > depth) over.splice(depth).reverse().forEach((each) => each.close());
	else if (stays && state && depth < before) history.back();
});

/** Go on at another address, under what is open. */
export function moveTo(hash) {
	history.replaceState(history.state, "", hash);
	address = location.href;
	dispatchEvent(new HashChangeEvent("hashchange"));
}

export function showDialog(dialog) {
	document.body.append(dialog);
	const closed = opensOver(dialog, () => dialog.close());
	dialog.addEventListener("close", () => {
		closed();
		dialog.remove();
	});
	dialog.showModal();
}

/** `question` may have a field. Resolves to whether the answer was `yes`. */
export const confirmed = (question, yes) => new Promise((resolve) => {
	const dialog = h("dialog.ask", { "aria-labelledby": "asked", onclose: () => resolve(dialog.returnValue === "yes") },
		h("form", { method: "dialog" }, h("p", { id: "asked" }, question),
			h("div.buttons", button("Cancel", () => dialog.close()),
				mainButton(yes, null, { type: "submit", value: "yes" }))));
	showDialog(dialog);
});

export function toast(content, ms = 5000) {
	const made = h("div.toast", { role: "status" }, content);
	// What is outside of a dialog is behind it.
	[document.body, ...document.querySelectorAll("dialog[open]")].pop().append(made);
	setTimeout(() => made.remove(), ms);
}

export const attempt = (work) => work.catch((error) => toast(error.message));

/** Let the first of the rows that are seen stay where it is. */
export function keepPlace(scroller, rows, change) {
	const { top } = scroller.getBoundingClientRect(), topOf = (row) => row.getBoundingClientRect().top;
	const seen = [...rows].find((row) => row.getBoundingClientRect().bottom > top), was = seen && topOf(seen);
	change();
	if (seen?.isConnected) scroller.scrollTop += topOf(seen) - was;
}

export const nameOf = (chat) => chat.split(":").pop();

export const placeOf = (chat, seq) => `#/chats/${encodeURIComponent(nameOf(chat))}/${seq}`;

export function pointAt(field, options, at) {
	options.forEach((each, place) =>
		Object.assign(each, { id: `option-${place}`, role: "option", ariaSelected: place === at }));
	options[at]?.scrollIntoView({ block: "nearest" });
	field.setAttribute("aria-activedescendant", `option-${at}`);
}

export const setCurrent = (link, current) => { link.ariaCurrent = current ? "page" : null; };

export function closedByBack(popover) {
	let closed = () => null;
	popover.addEventListener("toggle", ({ newState }) => {
		closed();
		if (newState === "open") closed = opensOver(popover, () => popover.hidePopover());
	});
	return popover;
}

/** `entries` are [text, what to do] or nothing, or a function that gives them. */
export function menu(label, entries) {
	const entry = ([text, act]) => button(text, () => {
		place.hidePopover();
		act();
	});
	const fill = () => place.firstChild || place.append(...(entries.call?.() || entries).filter(Boolean).map(entry));
	const place = closedByBack(h("div", { popover: "auto", onbeforetoggle: fill }));
	return h("span.menu", iconButton("more", label, null, { popoverTargetElement: place }), place);
}

const modules = {};

export function opened(name) {
	// One promise for all: import() may give a module to a later caller first, and pieces of thinking come in order.
	return modules[name] ??= import(`./views/${name}.js`).catch(() => {
		delete modules[name];
		toast(unreachable());
		return new Promise(() => null); // what was asked for is asked for again by hand
	});
}

export const later = (name, act, ...given) => opened(name).then((view) => view[act](...given));
