import { get, post, unreachable } from "./api.js";
import { button, closedByBack, h, icon, iconButton, later, moveTo, select, setCurrent, toast } from "./dom.js";
import { LANGUAGES, inShort, language, said, setLanguage, t } from "./i18n.js";
import { Socket } from "./socket.js";
import { VIEWS } from "./views.js";

const root = document.documentElement, CODE = "#/code/"; // of a scanned QR code
const ME = "klaw.me"; // whose the page is without a connection

function setTheme(theme) {
	root.dataset.theme = theme;
	localStorage.setItem("klaw.theme", theme);
}

setTheme(localStorage.getItem("klaw.theme") || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));

export const app = { me: null, socket: null };

async function begin() {
	const told = location.hash.startsWith(CODE) ? await later("scanned", "enter") : "";
	const before = JSON.parse(localStorage.getItem(ME));
	try {
		app.me = await get("/me");
		if (before && before.user !== app.me.user) await later("phone", "clear");
		localStorage.setItem(ME, JSON.stringify(app.me));
	} catch (error) {
		const { status, message } = error;
		if ([401, 403].includes(status)) return later("login", "showLogin", status === 403 ? message : told);
		app.me = before;
		if (!before) {
			document.body.replaceChildren(h("main.alone", h("p", unreachable())));
			return setTimeout(begin, 2000);
		}
	}
	const { hint, degraded, zone } = app.me;
	app.socket = Object.assign(new Socket(), { hint, degraded });
	app.socket.addEventListener("unauthorized", () => location.reload());
	showFrame();
	if (told) toast(told);
	setTimeout(() => later("phone", "install").catch(() => null), 500); // after the first paint
	if (zone) return; // else the first browser says it
	const mine = Intl.DateTimeFormat().resolvedOptions().timeZone;
	post("/zone/set", { zone: mine }).then((now) => { app.me.zone = now.zone; }, () => null);
}

export function tools(given = {}, links = []) {
	const choice = { ariaLabel: t("Language"), onchange: ({ target }) => setLanguage(target.value) };
	return h("div.tools", given, links, select(Object.entries(LANGUAGES), language, choice),
		iconButton("theme", "Light or dark", () => setTheme(root.dataset.theme === "dark" ? "light" : "dark")),
		app.me && [iconButton("keys", "Keyboard shortcuts", () => later("go", "keys")),
			["Channels", "Access"].map((name) => h("a.button", { href: `#/${name.toLowerCase()}` }, t(name))),
			button("Notifications", () => later("phone", "notifications")),
			app.me.needs_token && button("Log out", () => later("phone", "logOut"))]);
}

/** What does not work, or what to do first. */
function notice(href, read, onclick) {
	const line = app.me.operator ? h("a", { href, onclick }) : h("span");
	const close = iconButton("close", "Close", () => { place.hidden = true; });
	const place = h("p.degraded", { role: "status", hidden: true }, h("span", line), close);
	const show = () => {
		const text = read();
		if (text === line.textContent) return;
		line.textContent = text;
		place.hidden = !text;
	};
	for (const event of ["frame", "online"]) app.socket.addEventListener(event, show);
	show();
	return place;
}

/** With another alphabet, the place of a key says which it is. */
function pressed(event) {
	const { key, code = "", ctrlKey, metaKey, altKey, shiftKey, target } = event;
	const letter = (/^[a-z]$/i.test(key) ? key : code.slice(3)).toLowerCase();
	if (key === "Escape" && !event.defaultPrevented && !document.querySelector("dialog, :popover-open")) {
		document.querySelector("klaw-chat .doing button:not([hidden])")?.click();
	}
	const act = (ctrlKey || metaKey) && !altKey ? { k: !shiftKey && "go", o: shiftKey && "begin" }[letter]
		: key === "?" && !target.closest("input, textarea, select") && "keys";
	if (!act) return;
	event.preventDefault();
	later("go", act);
}

function notices() {
	const { socket, me } = app;
	const connect = (event) => {
		event.preventDefault();
		later("connect", "connect");
	};
	const hint = () => (socket.hint && me.operator ? t("A small built-in model answers. Connect a larger one.")
		: said(socket.hint));
	return h("div.notices", notice("#/system/connect", hint, connect),
		notice("#/system", () => [...new Set(socket.degraded.map(inShort))].join(" ")));
}

function showFrame() {
	const place = h("main", { id: "view" });
	const views = VIEWS.filter((view) => !view.within && (!view.operator || app.me.operator));
	const link = ({ rare, path, name }) => h(rare ? "a.rare" : "a", { href: `#/${path}` }, icon(path), " ", t(name));
	const links = views.map(link), rare = views.filter((view) => view.rare).map(link); // a phone has these behind "More"
	const more = closedByBack(tools({ id: "tools", popover: "auto",
		onclick: ({ target }) => target.closest("a") && more.hidePopover() }, rare));
	document.body.replaceChildren(h("nav.views", { ariaLabel: t("Menu") }, h("strong", "Klaw"), links,
		h("button.more", { popovertarget: "tools" }, icon("more"), " ", t("More")), more),
	h("div.frame", notices(), place));
	let missed = ""; // what could not be opened without a connection
	const show = async () => {
		const [path, ...rest] = decodeURI(location.hash.replace(/^#\/?/, "")).split("/");
		const view = VIEWS.find((each) => each.path === path) || VIEWS[0];
		const where = rest.map(decodeURIComponent), element = `klaw-${view.path}`, asked = location.hash;
		try {
			const { default: View } = await import(`./views/${view.path}.js`);
			if (!customElements.get(element)) customElements.define(element, View);
		} catch {
			missed = asked;
			return toast(unreachable());
		}
		if (location.hash !== asked) return;
		const current = `#/${view.within || view.path}`;
		[...links, ...rare].forEach((each) => setCurrent(each, each.hash === current));
		document.title = `${t(view.name)} – Klaw`;
		const open = place.firstElementChild;
		if (open?.localName === element) open.go(where);
		else place.replaceChildren(h(element, { where }));
	};
	if (!location.hash) moveTo("#/chats/");
	addEventListener("hashchange", show);
	addEventListener("keydown", pressed);
	app.socket.addEventListener("online", ({ detail }) => {
		if (detail && missed === location.hash) show();
		if (detail) missed = "";
	});
	show();
}

addEventListener("hashchange", () => location.hash.startsWith(CODE) && location.reload());
begin();
