// What is remembered: facts, people and topics, each in a module of its own.

import { attempt, failure, get, h, openDialog, post, remove, setCurrent, t, toast, when } from "../forms.js";
import { forgetting } from "./forgetting.js";
import { showFacts } from "./memory/facts.js";
import { showPeople } from "./memory/people.js";
import { showTopics } from "./memory/topics.js";

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

export function showAgain() {
  const open = document.querySelector("klaw-memory");
  open?.go(open.where);
}

/** Say that something was done, with a button that takes it back, and show what there is now (`again`), or go to `hash`. */
export function done(text, undo, hash = location.hash, again = showAgain) {
  toast([text, " ", h("button", (event) => {
    event.target.disabled = true;
    attempt(undo().then(again));
  }, t("Undo"))], 15000);
  if (hash === location.hash) again();
  else location.hash = hash;
}

/** What can be done with a fact or a person. `told` says what a version of it was; `hash` is where one is once it is gone. */
export const buttons = (path, what, write, told, hash, forgotten, ...more) => [
  h("button", write, t("Edit")), more,
  h("button", () => showHistory(path, told), t("History")),
  h("button", () => attempt(remove(path).then(() => done(t("Removed."), () => post(`${path}/undo`), hash))), t("Delete")),
  h("button", () => forgetting(what, forgotten), t("Forget"))];

/** Changes in a dialog. `rows` loads of each how it is shown, and its entry where `button` can go back to it. */
export const showChanges = (title, rows, path, button, again = showAgain) => openDialog(title, async (dialog) => {
  const problem = h("div");
  const back = (entry) => post(`${path}/undo`, { entry }).then(() => { dialog.close(); again(); }, (error) => problem.replaceChildren(failure(error)));
  dialog.show(h("ol.lines", (await rows()).map(([shown, entry]) => h("li", shown, entry && h("div.buttons", h("button", () => back(entry), button))))), problem);
});

/** All versions of a fact, a person or a task, the newest first. `told` says what one was. */
export const showHistory = (path, told, again) => showChanges(t("History"), async () => (await get(`${path}/history`)).changes.reverse().map((each, index) => [
  [h("p.hint", when(each.at)), h("p.quote", told(each) || t("(removed)"))], index > 0 && each.entry]), path, t("Back to this"), again);

/** A list whose next pages come by a button; without entries it says `none`. */
export async function paged(place, path, query, entries, entry, none) {
  const list = h("ul.lines"), more = h("button", { hidden: true }, t("More"));
  place.append(list, more);
  const load = async (page) => {
    const found = await get(path, { ...query, page, limit: 50 });
    list.append(...found[entries].map(entry));
    more.hidden = found.next === null;
    more.onclick = () => attempt(load(found.next));
    if (!found.count) list.append(h("li.none", none));
  };
  await load(1);
}

customElements.define("klaw-memory", Memory);
