// The page: who is there, which view is open, what holds for all of them.

import { get, post, Problem } from "/static/api.js";
import { h, icon, iconButton, later, moveTo, opensOver, setCurrent, toast } from "/static/dom.js";
import { LANGUAGES, currentLanguage, inShort, said, setLanguage, t } from "/static/i18n.js";
import { Socket } from "/static/socket.js";
import { VIEWS } from "/static/views.js";

const root = document.documentElement, CODE = "#/code/"; // of a scanned QR code

function setTheme(theme) {
  root.dataset.theme = theme;
  localStorage.setItem("klaw.theme", theme);
}

setTheme(localStorage.getItem("klaw.theme") || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));

/** What views share: who is there and the connection. */
export const app = { me: null, socket: null };

const ME = "klaw.me"; // whose the page is without a connection

async function begin() {
  const told = location.hash.startsWith(CODE) ? await later("scanned", "enter") : "";
  const before = JSON.parse(localStorage.getItem(ME));
  try {
    app.me = await get("/me");
    if (before && before.user !== app.me.user) await later("phone", "clear");
    localStorage.setItem(ME, JSON.stringify(app.me));
  } catch (error) {
    if (error instanceof Problem && [401, 403].includes(error.status)) return later("login", "showLogin", error.status === 403 ? error.message : told);
    app.me = before;
    if (!before) {
      document.body.replaceChildren(h("main.alone", h("p", t("The server does not answer."))));
      return setTimeout(begin, 2000);
    }
  }
  app.socket = Object.assign(new Socket(), { hint: app.me.hint, degraded: app.me.degraded });
  app.socket.addEventListener("unauthorized", () => location.reload());
  showFrame();
  if (told) toast(told);
  setTimeout(() => later("phone", "install").catch(() => null), 500); // after the first paint
  // The first browser says the person's time zone.
  if (!app.me.zone) post("/zone/set", { zone: Intl.DateTimeFormat().resolvedOptions().timeZone }).then(({ zone }) => { app.me.zone = zone; }, () => null);
}

/** Language, light or dark, and the way out; `given` holds for the place of them. */
export function tools(given = {}, links = []) {
  const language = h("select", { "aria-label": t("Language"), onchange: () => setLanguage(language.value) },
    Object.entries(LANGUAGES).map(([code, name]) => h("option", { value: code, selected: code === currentLanguage() }, name)));
  return h("div.tools", given, links, language,
    iconButton("theme", t("Light or dark"), () => setTheme(root.dataset.theme === "dark" ? "light" : "dark")),
    app.me && iconButton("keys", t("Keyboard shortcuts"), () => later("go", "keys")),
    app.me && h("a.button", { href: "#/access" }, t("Access")),
    app.me && h("button", () => later("phone", "notifications"), t("Notifications")),
    app.me?.needs_token && h("button", () => later("phone", "logOut"), t("Log out")));
}

/** A line above the view, as soon as the server says something: what does not work, or what to do first. */
function notice(href, read, onclick) {
  const line = app.me.operator ? h("a", { href, onclick }) : h("span");
  const place = h("p.degraded", { role: "status", hidden: true }, h("span", line), iconButton("close", t("Close"), () => { place.hidden = true; }));
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

/** What keys do wherever one is. With another alphabet, the place of a key says which it is. */
function pressed(event) {
  const { key, code = "", ctrlKey, metaKey, altKey, shiftKey, target } = event, letter = /^[a-z]$/i.test(key) ? key.toLowerCase() : code.slice(3).toLowerCase();
  const held = (ctrlKey || metaKey) && !altKey;
  if (key === "Escape" && !event.defaultPrevented && !document.querySelector("dialog, details.menu[open], :popover-open")) document.querySelector("klaw-chat .doing button:not([hidden])")?.click();
  const act = held ? { k: !shiftKey && "go", o: shiftKey && "begin" }[letter] : key === "?" && !target.closest("input, textarea, select") && "keys";
  if (!act) return;
  event.preventDefault();
  later("go", act);
}

function connect(event) {
  event.preventDefault();
  later("connect", "connect");
}

function showFrame() {
  const place = h("main", { id: "view" });
  const views = VIEWS.filter((view) => !view.within && (!view.operator || app.me.operator));
  const link = (view) => h(view.rare ? "a.rare" : "a", { href: `#/${view.path}` }, icon(view.path), " ", t(view.name));
  const links = views.map(link), rare = views.filter((view) => view.rare).map(link); // a phone has these behind "More"
  let closed = () => null;
  const more = tools({ id: "tools", popover: "auto", onclick: ({ target }) => target.closest("a") && more.matches(":popover-open") && more.hidePopover(), ontoggle: ({ newState }) => {
    closed();
    if (newState === "open") closed = opensOver(more, () => more.hidePopover());
  } }, rare);
  document.body.replaceChildren(h("nav.views", { "aria-label": t("Menu") }, h("strong", "Klaw"), links,
    h("button.more", { popovertarget: "tools" }, icon("more"), " ", t("More")), more), h("div.frame", h("div.notices", notice("#/system/connect", () => (app.socket.hint && app.me.operator ? t("A small built-in model answers. Connect a larger one.") : said(app.socket.hint)), connect),
      notice("#/system", () => [...new Set(app.socket.degraded.map(inShort))].join(" "))), place));
  let missed = ""; // the address that could not be opened without a connection
  const show = async () => {
    const [path, ...rest] = decodeURI(location.hash.replace(/^#\/?/, "")).split("/");
    const view = VIEWS.find((each) => each.path === path) || VIEWS[0];
    const where = rest.map(decodeURIComponent), element = `klaw-${view.path}`, asked = location.hash;
    try {
      await import(`/static/views/${view.path}.js`);
    } catch {
      missed = asked;
      return toast(t("The server does not answer."));
    }
    if (location.hash !== asked) return;
    [...links, ...rare].forEach((link) => setCurrent(link, link.getAttribute("href") === `#/${view.within || view.path}`));
    document.title = `${t(view.name)} – Klaw`;
    const open = place.firstElementChild;
    if (open && open.localName === element) open.go(where);
    else place.replaceChildren(Object.assign(document.createElement(element), { where }));
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
