// People a user speaks of: list, show, add, edit, merge, remove, history, undo, forget.

import { form, get, h, moveTo, openDialog, patch, post, t, when } from "../../forms.js";
import { askFor, lineOf } from "../../records.js";
import { buttons, done, paged } from "../memory.js";

export async function showPeople(place, id) {
  if (id) return showPerson(place, id);
  place.append(h("div.row", h("button.main", () => write(), t("Add"))));
  const told = await line();
  return paged(place, "/people", {}, "people", (person) => h("li",
    h("a", { href: link(person) }, h("strong", person.name)), h("p.hint", told(person))),
  t("Nobody yet. Add the people you talk about; with topics on, Klaw finds them by itself."));
}

const link = (person) => `#/memory/people/${person.id}`;
const pathOf = (person) => `/people/${person.id}`;

const line = () => lineOf("SpokenOf", {
  id: null, name: null, source: null, updated_at: null, relation: (value) => value, aliases: (value) => value.join(", "),
  topics: (count) => count > 0 && t("topics: {count}", { count }),
});

const ALL = "#/memory/people";

async function showPerson(place, id) {
  const { person, was, mentions } = await get(`/people/${encodeURIComponent(id)}`);
  place.append(...[h("h1", person.name), h("p.hint", (await line())(person)),
    was.map((each) => h("p", `${t("was also known as")} ${each.name}`)),
    h("div.buttons.start", buttons(pathOf(person), `person:${person.id}`, () => write(person), ({ person: each }) => each && [each.name, ...each.aliases, each.relation].filter(Boolean).join(", "),
      ALL, () => moveTo(ALL), h("button", () => merge(person), t("Merge")))),
    mentions.length ? [h("h2", t("Named in")), h("ul.lines", mentions.map((each) => h("li", when(each.at), " ",
      each.topic !== null && h("a", { href: `#/memory/topics/${each.topic}` }, `${t("topic")} ${each.topic}`), each.day)))] : []].flat(2));
}

function write(person) {
  const aliases = person ? person.aliases : [];
  const others = person ? "add_aliases" : "aliases";
  askFor(t(person ? "Edit" : "Add"), person ? "person_edit" : "person_add", person, async ({ [others]: said = aliases.join(","), ...given }) => {
    const wanted = said.split(",").map((each) => each.trim()).filter(Boolean);
    const told = person ? await patch(pathOf(person), {
      ...given, add_aliases: wanted.filter((each) => !aliases.includes(each)), remove_aliases: aliases.filter((each) => !wanted.includes(each)),
    }) : await post("/people", { ...given, aliases: wanted });
    return () => done(t("Done."), () => post(`${pathOf(told.person)}/undo`));
  }, { edits: Boolean(person), own: { add_aliases: { value: aliases.join(", ") }, remove_aliases: null } });
}

const merge = (person) => openDialog(t("Merge"), async (dialog) => {
  const others = (await get("/people", { limit: 100 })).people.filter((each) => each.id !== person.id);
  if (!others.length) return dialog.show(h("p", t("There is nobody else.")));
  const choices = others.map((each) => [each.id, [each.name, each.relation].filter(Boolean).join(", ")]);
  return dialog.show(form([{ name: "into", label: t("Same person as"), choices, hint: t("All names go to the other one.") }], async ({ into }) => {
    const told = await post(`${pathOf(person)}/merge`, { into });
    dialog.close();
    done(t("Done."), () => post(`/people/${told.merged}/undo`), link(told.person));
  }, { button: t("Merge") }));
});
