// Facts: list, add, edit, remove, history, undo, forget; where each comes from.

import { attempt, get, h, patch, placeOf, post, t } from "../../page.js";
import { askFor, lineOf } from "../../records.js";
import { buttons, done, paged, showAgain } from "../memory.js";

const CATEGORIES = ["identity", "preference", "person", "project", "event", "place", "health", "work", "other"];
const SOURCES = { tool: "saved by the model", user: "written by you", archivist: "learned from what was said", chat: "learned from a message" };
let category = "";

export async function showFacts(place, id) {
  if (id) {
    const { fact } = await get("/fetch", { what: `fact:${id}` });
    return place.append(h("h1", t("Fact")), h("ul.lines", entry(fact, await line())));
  }
  const filter = h("select", { id: "category", onchange: () => { category = filter.value; showAgain(); } },
    [["", t("all")], ...CATEGORIES.map((each) => [each, t(each)])].map(([value, text]) => h("option", { value, selected: value === category }, text)));
  place.append(h("div.row", h("label", { htmlFor: "category" }, t("Category")), filter,
    h("button.main", () => write(), t("Add"))));
  const told = await line();
  await paged(place, "/facts", { category }, "facts", (fact) => entry(fact, told),
    category ? t("Nothing is here yet.") : t("No facts yet. Add one, or just talk: a model with tools saves what matters."));
}

const line = () => lineOf("Fact", {
  id: null, text: null, topic: null, category: (value) => t(value), source: (value) => t(SOURCES[value]),
  origin: (value) => value === "tool" && t("in words from outside"),
});

function entry(fact, told) {
  return h("li", { "data-id": fact.id }, h("p.quote", fact.text),
    h("p.hint", told(fact), sourceOf(fact)),
    h("div.buttons", buttons(`/facts/${fact.id}`, `fact:${fact.id}`, () => write(fact), (each) => each.fact && `${each.fact.text} · ${told(each.fact)}`, undefined, showAgain)));
}

/** A way to what a fact was drawn from. */
function sourceOf({ topic, message }) {
  if (topic) return h("a", { href: `#/memory/topics/${topic}` }, `${t("topic")} ${topic}`);
  return message && h("button.quiet", () => attempt(get("/fetch", { what: message, around: 0 }).then(({ chat, seq }) => { location.hash = placeOf(chat, seq); })), t("Where it was said"));
}

function write(fact) {
  askFor(t(fact ? "Edit" : "Add"), fact ? "fact_edit" : "fact_add", fact, async (given) => {
    const told = fact ? await patch(`/facts/${fact.id}`, given) : await post("/facts", given);
    return () => done(told.added === false ? t("Known already.") : t("Done."), () => post(`/facts/${told.fact.id}/undo`));
  }, { edits: Boolean(fact), own: { replaces: null } });
}
