import {
  attempt, button, failure, get, h, openDialog, post, remove, setCurrent, shown, t, toast, when,
} from "../forms.js";
import { forgetting } from "./forgetting.js";
import { showFacts } from "./memory/facts.js";
import { showPeople } from "./memory/people.js";
import { showTopics } from "./memory/topics.js";

const TABS = { facts: ["Facts", showFacts], people: ["People", showPeople], topics: ["Topics", showTopics] };

class Memory extends HTMLElement {
  where = [];

  connectedCallback() {
    const links = Object.entries(TABS).map(([noun, [name]]) => h("a.button", { href: `#/memory/${noun}` }, t(name)));
    this.replaceChildren(h("nav.tabs", { "aria-label": t("Memory") }, links), h("section"));
    this.go(this.where);
  }

  go(where) {
    this.where = where;
    const [noun, id] = TABS[where[0]] ? where : ["facts"], [name, show] = TABS[noun];
    for (const tab of this.querySelectorAll(".tabs a")) setCurrent(tab, tab.hash === `#/memory/${noun}`);
    const place = h("section", { "aria-label": t(name) }, !id && h("h1", t(name)));
    this.lastElementChild.replaceWith(place);
    show(id).catch(failure).then((content) => place.append(...shown([content])));
  }
}

export function showAgain() {
  const open = document.querySelector("klaw-memory");
  open?.go(open.where);
}

/** Say that something was done, with a button that takes it back, and go to `hash`. */
export function done(text, undo, hash = location.hash, again = showAgain) {
  const back = button("Undo", () => {
    back.disabled = true;
    attempt(undo().then(again));
  });
  toast([t(text), " ", back], 15000);
  if (hash === location.hash) again();
  else location.hash = hash;
}

/** `told` says what a version of it was; `hash` is where one is once it is gone. */
export const buttons = (path, what, write, told, hash, forgotten, ...more) => [
  button("Edit", write), more, button("History", () => showHistory(path, told)),
  button("Delete", () => attempt(remove(path).then(() => done("Removed.", () => post(`${path}/undo`), hash)))),
  button("Forget", () => forgetting(what, forgotten))];

/** `load` answers of each change how it is shown, and its entry where the button `back` can go to it. */
export const showChanges = (title, load, path, back, again = showAgain) => openDialog(t(title), async (dialog) => {
  const problem = h("div");
  const undo = (entry) => post(`${path}/undo`, { entry }).then(() => {
    dialog.close();
    again();
  }, (error) => problem.replaceChildren(failure(error)));
  const rows = (await load()).map(([content, entry]) =>
    h("li", content, entry && h("div.buttons", button(back, () => undo(entry)))));
  dialog.show(h("ol.lines", rows), problem);
});

export const showHistory = (path, told, again) => showChanges("History", async () => {
  const { changes } = await get(`${path}/history`);
  return changes.reverse().map((each, index) => [
    [h("p.hint", when(each.at)), h("p.quote", told(each) || t("(removed)"))], index > 0 && each.entry]);
}, path, "Back to this", again);

export async function paged(path, query, entries, entry, none) {
  const list = h("ul.lines"), more = button("More", null, { hidden: true });
  const load = async (page) => {
    const { next, count, ...found } = await get(path, { ...query, page, limit: 50 });
    list.append(...found[entries].map(entry));
    more.hidden = next === null;
    more.onclick = () => attempt(load(next));
    if (!count) list.append(h("li.none", t(none)));
  };
  await load(1);
  return [list, more];
}

customElements.define("klaw-memory", Memory);
