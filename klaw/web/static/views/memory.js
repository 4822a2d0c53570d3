// What is remembered: facts, people and topics, each noun in a module of its own.

import { get, post } from "/static/api.js";
import { h, setCurrent, toast } from "/static/dom.js";
import { failure, openDialog } from "/static/forms.js";
import { t, when } from "/static/i18n.js";
import { showFacts } from "/static/views/memory/facts.js";
import { showPeople } from "/static/views/memory/people.js";
import { showTopics } from "/static/views/memory/topics.js";

const TABS = { facts: ["Facts", showFacts], people: ["People", showPeople], topics: ["Topics", showTopics] };

class Memory extends HTMLElement {
  where = [];

  connectedCallback() {
    this.place = h("section");
    this.tabs = Object.entries(TABS).map(([noun, [name]]) => h("a.button", { href: `#/memory/${noun}` }, t(name)));
    this.replaceChildren(h("nav.tabs", { "aria-label": t("Memory") }, this.tabs), this.place);
    this.go(this.where);
  }

  go(where) {
    this.where = where;
    const noun = TABS[where[0]] ? where[0] : "facts";
    this.tabs.forEach((tab) => setCurrent(tab, tab.hash === `#/memory/${noun}`));
    const place = h("section", { "aria-label": t(TABS[noun][0]) });
    this.place.replaceWith(place);
    this.place = place;
    if (!where[1]) place.append(h("h1", t(TABS[noun][0])));
    TABS[noun][1](place, where[1]).catch((error) => place.append(failure(error)));
  }
}

/** Show again what the address names. */
export function showAgain() {
  document.querySelector("klaw-memory")?.go(document.querySelector("klaw-memory").where);
}

/** Say that something was done, with a button that takes it back, and show what there is now (`again`); elsewhere with `hash`. */
export function done(text, undo, hash = location.hash, again = showAgain) {
  toast([text, " ", h("button", (event) => {
    event.target.disabled = true;
    undo().then(again, (error) => toast(error.message));
  }, t("Undo"))], 15000);
  if (hash === location.hash) again();
  else location.hash = hash;
}

/** Do something at once; what goes wrong is said for a moment. */
export async function attempt(work) {
  try {
    await work();
  } catch (error) {
    toast(error.message);
  }
}

/** All versions of a fact, a person or a task, the newest first; any can be gone back to. `told` says what one was. */
export const showHistory = (path, told, again = showAgain) => openDialog(t("History"), async (dialog) => {
  const { changes } = await get(`${path}/history`);
  const problem = h("div");
  dialog.show(h("ol.lines", [...changes].reverse().map((each, index) => h("li",
    h("p.hint", when(each.at)), h("p.quote", told(each) || t("(removed)")),
    index > 0 && h("div.buttons", h("button", () => post(`${path}/undo`, { entry: each.entry }).then(
      () => { dialog.close(); again(); }, (error) => problem.replaceChildren(failure(error))), t("Back to this")))))), problem);
});

/** A list whose next pages come by a button; without entries it says `none`. */
export async function paged(place, path, query, entries, entry, none) {
  const list = h("ul.lines"), more = h("button", { hidden: true }, t("More"));
  place.append(list, more);
  const load = async (page) => {
    const found = await get(path, { ...query, page, limit: 50 });
    list.append(...found[entries].map(entry));
    more.hidden = found.next === null;
    more.onclick = () => attempt(() => load(found.next));
    if (!found.count) list.append(h("li.none", none));
  };
  await load(1);
}

customElements.define("klaw-memory", Memory);
