import { button, form, get, h, mainButton, moveTo, openDialog, patch, post, t, when } from "../../forms.js";
import { askFor, lineOf } from "../../records.js";
import { buttons, done, paged } from "../memory.js";

const ALL = "#/memory/people";
const pathOf = ({ id }) => `/people/${id}`;
const known = ({ name, aliases = [], relation }) => [name, ...aliases, relation].filter(Boolean).join(", ");

export async function showPeople(id) {
  const told = await lineOf("SpokenOf", {
    id: null, name: null, source: null, updated_at: null, relation: (value) => value,
    aliases: (value) => value.join(", "), topics: (count) => count > 0 && t("topics: {count}", { count }),
  });
  if (id) return onePerson(id, told);
  return [
    h("div.row", mainButton("Add", () => write())),
    await paged("/people", {}, "people", (person) => h("li",
      h("a", { href: `${ALL}/${person.id}` }, h("strong", person.name)), h("p.hint", told(person))),
    "Nobody yet. Add the people you talk about; with topics on, Klaw finds them by itself."),
  ];
}

async function onePerson(id, told) {
  const { person, was, mentions } = await get(`/people/${encodeURIComponent(id)}`);
  return [
    h("h1", person.name), h("p.hint", told(person)),
    was.map(({ name }) => h("p", `${t("was also known as")} ${name}`)),
    h("div.buttons.start", buttons(pathOf(person), `person:${person.id}`, () => write(person),
      (each) => each.person && known(each.person), ALL, () => moveTo(ALL), button("Merge", () => merge(person)))),
    mentions.length > 0 && [h("h2", t("Named in")), h("ul.lines", mentions.map(mention))],
  ];
}

const mention = ({ at, topic, day }) => h("li", when(at), " ",
  topic !== null && h("a", { href: `#/memory/topics/${topic}` }, `${t("topic")} ${topic}`), day);

function write(person) {
  const aliases = person?.aliases || [], names = person ? "add_aliases" : "aliases";
  const send = async ({ [names]: said = aliases.join(","), ...given }) => {
    const wanted = said.split(",").map((each) => each.trim()).filter(Boolean);
    const without = (some, others) => some.filter((each) => !others.includes(each));
    const told = person ? await patch(pathOf(person), { ...given, add_aliases: without(wanted, aliases),
      remove_aliases: without(aliases, wanted) }) : await post("/people", { ...given, aliases: wanted });
    return () => done("Done.", () => post(`${pathOf(told.person)}/undo`));
  };
  askFor(person ? "Edit" : "Add", person ? "person_edit" : "person_add", person, send,
    { edits: Boolean(person), own: { add_aliases: { value: aliases.join(", ") }, remove_aliases: null } });
}

const merge = (person) => openDialog(t("Merge"), async (dialog) => {
  const others = (await get("/people", { limit: 100 })).people.filter((each) => each.id !== person.id);
  if (!others.length) return dialog.show(h("p", t("There is nobody else.")));
  const choices = others.map(({ id, name, relation }) => [id, known({ name, relation })]);
  const field = { name: "into", label: t("Same person as"), choices, hint: t("All names go to the other one.") };
  dialog.show(form([field], async (given) => {
    const told = await post(`${pathOf(person)}/merge`, given);
    dialog.close();
    done("Done.", () => post(`/people/${told.merged}/undo`), `${ALL}/${told.person.id}`);
  }, { deed: "Merge" }));
});
