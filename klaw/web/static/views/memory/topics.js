// Topics: a time line, one with its messages, search, edit, merge, split, history, undo, forget.

import { get, patch, post } from "/static/api.js";
import { h, moveTo, nameOf, placeOf, searchField } from "/static/dom.js";
import { failure, form, openDialog } from "/static/forms.js";
import { currentLanguage, t, when } from "/static/i18n.js";
import { askFor } from "/static/records.js";
import { forgetting } from "/static/views/forgetting.js";
import { attempt, done, showAgain } from "/static/views/memory.js";

/** Show the topics along the time, the last talked about first; or one of them. */
export async function showTopics(place, id) {
  if (id) return showTopic(place, id);
  const chosen = new Set(), list = h("div"), search = searchField(t("Search in topics"));
  const none = t("No topics yet. Talk; with topics on, Klaw makes them from finished conversations.");
  search.onchange = () => attempt(async () => line(list, search.value.trim() ? (await get("/topics/search", { query: search.value.trim(), limit: 30 })).topics : all, chosen, search.value.trim() ? t("Nothing was found.") : none));
  place.append(h("div.row", search),
    h("div.buttons.start", h("button", () => merge([...chosen]), t("Merge selected")), h("button", () => changes(), t("History"))), list);
  const all = [], more = h("button", () => attempt(load), t("More"));
  const load = async () => {
    const { count, topics } = await get("/topics", { limit: 100, before: all.at(-1)?.last_rowid });
    all.push(...topics);
    more.hidden = all.length >= count;
    line(list, all, chosen, none);
  };
  place.append(more);
  await load();
}

/** Topics below the months in which they were last talked about; a bar says where in the whole time each of them lies. */
function line(list, found, chosen, none) {
  chosen.clear();
  const first = Math.min(...found.map((each) => Date.parse(each.first_at))), whole = Math.max(1, ...found.map((each) => Date.parse(each.last_at) - first));
  const months = new Map();
  for (const each of found) {
    const month = new Intl.DateTimeFormat(currentLanguage(), { month: "long", year: "numeric" }).format(new Date(each.last_at));
    if (!months.has(month)) months.set(month, []);
    months.get(month).push(each);
  }
  const row = (each) => {
    const span = h("span.span");
    span.style.marginLeft = `${(98 * (Date.parse(each.first_at) - first)) / whole}%`;
    span.style.width = `${Math.max(2, (100 * (Date.parse(each.last_at) - Date.parse(each.first_at))) / whole)}%`;
    return h("li", h("div.row",
      h("input", { type: "checkbox", "aria-label": t("Choose topic {id}", { id: each.id }), onchange: (event) => (event.target.checked ? chosen.add(each.id) : chosen.delete(each.id)) }),
      h("a", { href: `#/memory/topics/${each.id}` }, each.summary)), h("div.track", { "aria-hidden": "true" }, span), about(each));
  };
  list.replaceChildren(...[...months].flatMap(([month, topics]) => [h("h2", month), h("ul.lines", topics.map(row))]));
  if (!found.length) list.replaceChildren(h("p.none", none));
}

function about(topic) {
  const span = topic.first_at.slice(0, 10) === topic.last_at.slice(0, 10) ? when(topic.last_at) : `${when(topic.first_at)} – ${when(topic.last_at)}`;
  return h("p.hint", `${nameOf(topic.chat)} · ${span} · ${t("messages: {count}", { count: topic.messages })}`);
}

async function showTopic(place, id) {
  const { topic, messages } = await get(`/topics/${encodeURIComponent(id)}`);
  const chat = nameOf(topic.chat), cuts = new Set(), problem = h("div");
  const split = async () => {
    problem.replaceChildren();
    try {
      await post(`/topics/${topic.id}/split`, { at: [...cuts] });
      done(t("Done."), () => post("/topics/undo"), "#/memory/topics");
    } catch (error) {
      problem.replaceChildren(failure(error));
    }
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
      index > 0 && h("label.tick", t("A new topic begins here"), h("input", { type: "checkbox",
        onchange: (event) => (event.target.checked ? cuts.add(`${chat}#${each.seq}`) : cuts.delete(`${chat}#${each.seq}`)) }))))));
}

function edit(topic) {
  askFor(t("Edit"), "topics_edit", topic, async (given) => {
    await patch(`/topics/${topic.id}`, given);
    return () => done(t("Done."), () => post("/topics/undo"));
  }, { edits: true, own: { summary: { rows: 4 } } });
}

function merge(topics) {
  const dialog = openDialog(t("Merge"));
  if (topics.length < 2) return dialog.show(h("p", t("Choose two or more topics of one chat.")));
  return dialog.show(h("p", topics.join(", ")), form([
    { name: "summary", label: t("Summary"), rows: 3, hint: t("empty: the old ones, one after the other") },
  ], async ({ summary }) => {
    const told = await post("/topics/merge", { topics, ...(summary ? { summary } : {}) });
    dialog.close();
    done(t("Done."), () => post("/topics/undo"), `#/memory/topics/${told.topic.id}`);
  }, { button: t("Merge") }));
}

/** What was done to topics, the newest first; each can be taken back. */
const changes = (topic) => openDialog(t("Changes of topics"), async (dialog) => {
  const found = (await get("/topics/history", { topic, limit: 50 })).changes, problem = h("div");
  dialog.show(h("ol.lines", found.map((each) => h("li",
    h("p", `${each.entry}: ${t(each.op === "merge" && each.before_count < 2 ? "edit" : each.op)} · ${each.before.map((one) => one.id).join(", ") || "–"} → ${each.after.join(", ") || "–"}`),
    each.before.map((one) => h("p.quote", one.summary)),
    h("p.hint", [when(each.at), each.by === "archivist" ? "Klaw" : t(each.by), each.undoes && t("takes back {entry}", { entry: each.undoes }),
      each.undone_by && t("taken back by {entry}", { entry: each.undone_by })].filter(Boolean).join(" · ")),
    !each.undone_by && h("div.buttons", h("button", () => post("/topics/undo", { entry: each.entry }).then(
      () => { dialog.close(); showAgain(); }, (error) => problem.replaceChildren(failure(error))), t("Take back"))))),
  !found.length && h("li.hint", t("Nothing is here yet."))), problem);
});
