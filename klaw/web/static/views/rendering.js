// An answer as HTML while it comes: finished blocks stay as they are, the open one is made anew, and what is not
// rendered yet is hidden, unless that takes long.

import { h, markdown, setRendered } from "../page.js";

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
