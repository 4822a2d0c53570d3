import { attempt, get, h, mainButton, patch, placeOf, post, select, t } from "../../page.js";
import { askFor, lineOf } from "../../records.js";
import { buttons, done, paged, showAgain } from "../memory.js";

const CATEGORIES = ["identity", "preference", "person", "project", "event", "place", "health", "work", "other"];
const SOURCES = {
  tool: "saved by the model", user: "written by you", archivist: "learned from what was said",
  chat: "learned from a message",
};
let category = "";

export async function showFacts(id) {
  const told = await lineOf("Fact", {
    id: null, text: null, topic: null, category: (value) => t(value), source: (value) => t(SOURCES[value]),
    origin: (value) => value === "tool" && t("in words from outside"),
  });
  const row = (fact) => entry(fact, told);
  if (id) {
    const { fact } = await get("/fetch", { what: `fact:${id}` });
    return [h("h1", t("Fact")), h("ul.lines", row(fact))];
  }
  const choices = [["", t("all")], ...CATEGORIES.map((each) => [each, t(each)])];
  const filter = select(choices, category, { id: "category", onchange: () => {
    category = filter.value;
    showAgain();
  } });
  return [
    h("div.row", h("label", { htmlFor: "category" }, t("Category")), filter, mainButton("Add", () => write())),
    await paged("/facts", { category }, "facts", row, category ? "Nothing is here yet."
      : "No facts yet. Add one, or just talk: a model with tools saves what matters."),
  ];
}

function entry(fact, told) {
  const { id, text } = fact, version = (each) => each.fact && `${each.fact.text} · ${told(each.fact)}`;
  return h("li", { "data-id": id }, h("p.quote", text), h("p.hint", told(fact), sourceOf(fact)),
    h("div.buttons", buttons(`/facts/${id}`, `fact:${id}`, () => write(fact), version, undefined, showAgain)));
}

function sourceOf({ topic, message }) {
  if (topic) return h("a", { href: `#/memory/topics/${topic}` }, `${t("topic")} ${topic}`);
  const open = async () => {
    const { chat, seq } = await get("/fetch", { what: message, around: 0 });
    location.hash = placeOf(chat, seq);
  };
  return message && h("button.quiet", () => attempt(open()), t("Where it was said"));
}

const write = (fact) => askFor(fact ? "Edit" : "Add", fact ? "fact_edit" : "fact_add", fact, async (given) => {
  const told = fact ? await patch(`/facts/${fact.id}`, given) : await post("/facts", given);
  return () => done(told.added === false ? "Known already." : "Done.", () => post(`/facts/${told.fact.id}/undo`));
}, { edits: Boolean(fact), own: { replaces: null } });
