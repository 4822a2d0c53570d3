// Building elements without HTML in strings: text from users and models is always text.

import { rendered } from "./api.js";
import { t } from "./i18n.js";

/** An element; its name may have classes ("p.hint"). Keys of `given` that begin with "on" are listeners, the others
 * properties or attributes. It may be left out, or be only what a click does. */
export function h(name, given, ...children) {
  if (typeof given === "function") return h(name, { onclick: given }, ...children);
  if (given?.constructor !== Object) return h(name, {}, given, ...children);
  const [tag, ...classes] = name.split("."), made = document.createElement(tag);
  made.classList.add(...classes);
  for (const [key, value] of Object.entries(given)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "class") made.className = value;
    else if (key in made && key !== "list" && key !== "form") made[key] = value;
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false));
  return made;
}

/** An element of SVG. */
export function svg(name, given, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(given)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** A sign of icons.svg; what is around it says what it means. */
export const icon = (sign) => svg("svg", { class: "icon", "aria-hidden": true }, svg("use", { href: `/static/icons.svg#${sign}` }));

/** A button that is only a sign; `label` is its name. */
export const iconButton = (sign, label, onclick, given) => h(`button.icon.${sign}`, { type: "button", title: label, "aria-label": label, onclick, ...given }, icon(sign));

/** A link to where one came from. */
export const backTo = (href, label) => h("a.back", { href, "aria-label": label, title: label }, icon("back"));

/** Put what the server has made harmless into an element; links open outside of the page. */
export function setRendered(element, html) {
  element.innerHTML = html;
  for (const link of element.querySelectorAll("a")) link.target = "_blank";
  for (const wide of element.querySelectorAll("pre, table")) wide.tabIndex = 0;
  for (const block of element.querySelectorAll(".block")) block.append(iconButton("copy", t("Copy"), () => later("copying", "copyBlock", block)));
}

/** A text that may be Markdown: as it is, until the server has made it HTML; then `done` is called. */
export function markdown(text, done = () => null) {
  const shown = h("div.text.plain", { dir: "auto" }, text);
  if (/[*_`#>|\[\]~\-\d\\$/]/.test(text)) {
    rendered(text).then((html) => {
      shown.classList.remove("plain");
      shown.removeAttribute("dir");
      setRendered(shown, html);
      done();
    }).catch(() => null);
  }
  return shown;
}

let over = []; // what is open over the view, the last opened last: Back closes it before it leaves the view
let depth = history.state?.over || 0; // how many the entry of the history stands for; more than there are, once some were closed otherwise
let address = location.href;

const isOpen = ({ element }) => element.isConnected && (element.open ?? element.matches(":popover-open")); // the event of closing comes later

/** Let Back close something that was just opened over the view. Returns what is to be called when it is closed. */
export function opensOver(element, close) {
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
  else if (stays && state && depth < before) history.back(); // nothing of it was open any more
});

/** Go on at another address, under what is open: what was shown is gone. */
export function moveTo(hash) {
  history.replaceState(history.state, "", hash);
  address = location.href;
  dispatchEvent(new HashChangeEvent("hashchange"));
}

/** Show a dialog over the view; it is gone once it is closed. */
export function showDialog(dialog) {
  document.body.append(dialog);
  const closed = opensOver(dialog, () => dialog.close());
  dialog.addEventListener("close", () => {
    closed();
    dialog.remove();
  });
  dialog.showModal();
}

/** Ask for a yes or no in a dialog of the page, or for what `text` has a field for; resolves to whether it was yes. */
export function confirmed(text, yes, no) {
  return new Promise((resolve) => {
    const dialog = h("dialog.ask", { "aria-labelledby": "asked", onclose: () => resolve(dialog.returnValue === "yes") },
      h("form", { method: "dialog" },
        h("p", { id: "asked" }, text),
        h("div.buttons",
          h("button", { type: "button", onclick: () => dialog.close() }, no),
          h("button.main", { value: "yes" }, yes))));
    showDialog(dialog);
  });
}

export function toast(text, ms = 5000) {
  const made = h("div.toast", { role: "status" }, text);
  [document.body, ...document.querySelectorAll("dialog[open]")].pop().append(made); // what is outside of a dialog is behind it
  setTimeout(() => made.remove(), ms);
}

/** Wait for what is being done; what goes wrong is said for a moment. */
export const attempt = (work) => work.catch((error) => toast(error.message));

/** Change what is shown, while the first of the rows that are seen stays where it is in `scroller`. */
export function keepPlace(scroller, rows, change) {
  const top = scroller.getBoundingClientRect().top, seen = [...rows].find((row) => row.getBoundingClientRect().bottom > top);
  const was = seen?.getBoundingClientRect().top;
  change();
  if (seen?.isConnected) scroller.scrollTop += seen.getBoundingClientRect().top - was;
}

export const nameOf = (chat) => chat.split(":").pop();

export const placeOf = (chat, seq) => `#/chats/${encodeURIComponent(nameOf(chat))}/${seq}`;

export const setCurrent = (link, current) => { link.ariaCurrent = current ? "page" : null; };

export const searchField = (label, given) => h("input", { type: "search", placeholder: label, "aria-label": label, ...given });

/** A menu behind a button. Escape, Back, a click elsewhere and the choice of an entry close it. `entries` are [text, what to do, whether it is offered]. */
export function menu(label, entries) {
  const fill = () => place.firstChild || place.append(...entries.filter(([, , offered]) => !offered || offered()).map(([text, act]) => h("button", () => { close(); act(); }, text)));
  const place = h("div"), summary = h("summary", { role: "button", ariaExpanded: "false", "aria-label": label, title: label, onclick: fill }, icon("more"));
  let closed = () => null;
  const close = () => {
    made.open = false;
    closed();
  };
  const made = h("details.menu", {
    onkeydown: (event) => {
      if (event.key === "Escape" && made.open) {
        event.stopPropagation();
        close();
        summary.focus();
      }
    },
    onfocusout: (event) => made.contains(event.relatedTarget) || event.relatedTarget === null || close(),
    ontoggle: () => {
      closed();
      summary.ariaExpanded = made.open;
      if (!made.open) return;
      closed = opensOver(made, close);
      addEventListener("pointerdown", (event) => made.contains(event.target) || close(), { once: true });
    } },
  summary, place);
  return made;
}

const modules = {};

/** The module of views/ that is needed only once somebody asks for it. */
export function opened(name) {
  // One promise for all callers: import() may give a module to a later caller first, and pieces of thinking come in order.
  return modules[name] ??= import(`/static/views/${name}.js`).catch(() => {
    delete modules[name];
    toast(t("The server does not answer."));
    return new Promise(() => null); // what was asked for is asked for again by hand
  });
}

/** Load a module of views/ and call a function of it. */
export const later = (name, act, ...given) => opened(name).then((view) => view[act](...given));
