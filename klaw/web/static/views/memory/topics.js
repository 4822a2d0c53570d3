// Topics: a time line, one with its messages, search, edit, merge, split, history, undo, forget.

import { attempt, failure, formDialog, get, h, inLine, monthOf, moveTo, nameOf, openDialog, patch, placeOf, post, searchField, t, when } from "../../forms.js";
import { askFor } from "../../records.js";
import { forgetting } from "../forgetting.js";
import { done, showChanges } from "../memory.js";

export async function showTopics(place, id) {
  if (id) return showTopic(place, id);
  const chosen = new Set(), list = h("div"), search = searchField(t("Search in topics"));
  const none = t("No topics yet. Talk; with topics on, Klaw makes them from finished conversations.");
  search.onchange = () => {
    const query = search.value.trim();
    if (!query) return line(list, all, chosen, none);
    attempt(get("/topics/search", { query, limit: 30 }).then(({ topics }) => line(list, topics, chosen, t("Nothing was found."))));
  };
  place.append(h("div.row", search),
    h("div.buttons.start", h("button", () => merge([...chosen]), t("Merge selected")), h("button", () => changes(), t("History"))), list);
  const all = [], more = h("button", () => attempt(load()), t("More"));
  const load = async () => {
    const { count, topics } = await get("/topics", { limit: 100, before: all.at(-1)?.last_rowid });
    all.push(...topics);
    more.hidden = all.length >= count;
    line(list, all, chosen, none);
  };
  place.append(more);
  await load();
}

/** A box to tick: then something is in a set. */
const box = (chosen, what, given) => h("input", { type: "checkbox", ...given, onchange: ({ target }) => (target.checked ? chosen.add(what) : chosen.delete(what)) });

/** Topics below the months in which they were last talked about; a bar shows when each of them was. */
function line(list, found, chosen, none) {
  chosen.clear();
  const first = Math.min(...found.map((each) => Date.parse(each.first_at))), whole = Math.max(1, ...found.map((each) => Date.parse(each.last_at) - first));
  const months = new Map();
  for (const each of found) {
    const month = monthOf(each.last_at);
    months.set(month, [...(months.get(month) || []), each]);
  }
  const row = (each) => {
    const span = h("span.span");
    span.style.marginLeft = `${(98 * (Date.parse(each.first_at) - first)) / whole}%`;
    span.style.width = `${Math.max(2, (100 * (Date.parse(each.last_at) - Date.parse(each.first_at))) / whole)}%`;
    return h("li", h("div.row",
      box(chosen, each.id, { "aria-label": t("Choose topic {id}", { id: each.id }) }),
      h("a", { href: `#/memory/topics/${each.id}` }, each.summary)), h("div.track", { "aria-hidden": "true" }, span), about(each));
  };
  list.replaceChildren(...[...months].flatMap(([month, topics]) => [h("h2", month), h("ul.lines", topics.map(row))]));
  if (!found.length) list.replaceChildren(h("p.none", none));
}

function about(topic) {
  const span = topic.first_at.slice(0, 10) === topic.last_at.slice(0, 10) ? when(topic.last_at) : `${when(topic.first_at)} – ${when(topic.last_at)}`;
  return h("p.hint", inLine(nameOf(topic.chat), span, t("messages: {count}", { count: topic.messages })));
}

async function showTopic(place, id) {
  const { topic, messages } = await get(`/topics/${encodeURIComponent(id)}`);
  const chat = nameOf(topic.chat), cuts = new Set(), problem = h("div");
  const split = () => {
    problem.replaceChildren();
    post(`/topics/${topic.id}/split`, { at: [...cuts] }).then(() => finished("#/memory/topics"), (error) => problem.replaceChildren(failure(error)));
  };
  place.append(h("h1", topic.summary), about(topic),
    h("div.buttons.start",
      h("button", () => edit(topic), t("Edit")),
      h("button", () => changes(topic.id), t("History")),
      h("button", () => forgetting(`topic:${topic.id}`, () => moveTo("#/memory/topics")), t("Forget")),
      messages.length > 1 && h("button", split, t("Split"))), problem,
    messages.length > 1 ? h("p.hint", t("Tick where a new topic begins; without a tick a model decides.")) : "",
    h("ul.lines", messages.map((each, index) => h("li",
      h("p.hint", h("a", { href: placeOf(chat, each.seq) }, `${chat}#${each.seq}`), ` ${when(each.at)}`),
      h("p.quote", each.content),
      index > 0 && h("label.tick", t("A new topic begins here"), box(cuts, `${chat}#${each.seq}`))))));
}

const finished = (hash) => done(t("Done."), () => post("/topics/undo"), hash);

const edit = (topic) => askFor(t("Edit"), "topics_edit", topic, async (given) => {
  await patch(`/topics/${topic.id}`, given);
  return finished;
}, { edits: true, own: { summary: { rows: 4 } } });

function merge(topics) {
  if (topics.length < 2) return openDialog(t("Merge"), h("p", t("Choose two or more topics of one chat.")));
  return formDialog(t("Merge"), [{ name: "summary", label: t("Summary"), rows: 3, hint: t("empty: the old ones, one after the other") }], async ({ summary }) => {
    const { topic } = await post("/topics/merge", { topics, ...(summary && { summary }) });
    return () => finished(`#/memory/topics/${topic.id}`);
  }, { button: t("Merge"), above: h("p", topics.join(", ")) });
}

/** What was done to topics, the newest first; each can be taken back. */
const changes = (topic) => showChanges(t("Changes of topics"), async () => {
  const found = (await get("/topics/history", { topic, limit: 50 })).changes.map((each) => [[
    h("p", `${each.entry}: ${t(each.op === "merge" && each.before_count < 2 ? "edit" : each.op)} · ${each.before.map((one) => one.id).join(", ") || "–"} → ${each.after.join(", ") || "–"}`),
    each.before.map((one) => h("p.quote", one.summary)),
    h("p.hint", inLine(when(each.at), each.by === "archivist" ? "Klaw" : t(each.by), each.undoes && t("takes back {entry}", { entry: each.undoes }),
      each.undone_by && t("taken back by {entry}", { entry: each.undone_by })))], !each.undone_by && each.entry]);
  return found.length ? found : [[h("p.hint", t("Nothing is here yet."))]];
}, "/topics", t("Take back"));
