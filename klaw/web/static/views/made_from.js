// What an answer was made from, and what a person can do about each line of it (docs/receipts.md).

import { attempt, failure, form, formDialog, get, h, inLine, nameOf, number, openDialog, patch, placeOf, post, said, t, toast, when } from "../forms.js";
import { forgetting } from "./forgetting.js";
import { addressOf, placeOf as standsAt } from "./knowledge/reader.js";

const LAYERS = {
  system_prompt: "System prompt", core_memory: "Core memory and facts", summary: "Summaries", topics: "Topics", recall: "Recalled",
  window: "Conversation", pending: "Question", tools: "Tools", free: "Free",
};

const DECISIONS = {
  near: "near by meaning", words: "shares {shared} of {asked} content words", ranked: "recalled by its rank", no_content: "the question is small talk",
  too_far: "not about the question: too far", over_top_k: "better ones filled the places (topK {topK})", over_budget: "no room: {left} of {maxTokens} tokens were left",
  repeated: "message {by} is newer and says the same", in_window: "the model sees it in full anyway", in_topic: "a topic shows it", unwanted: "you said: never again",
};
const OF_TOPICS = {
  chosen: "chosen", not_chosen: "the reranker left it out", too_far: "neither its vector nor its words fit",
  over_count: "enough better ones were found", over_budget: "no room was left",
  in_context: "all of its messages are in the prompt anyway", unwanted: "you said: never again", gone: "it was gone",
};
const NUMBERS = {
  distance: "distance", shared_words: "shared words", vector_rank: "rank by meaning", text_rank: "rank by words", dated_rank: "rank by date",
  score: "score", tokens: "tokens",
};

/** Open what a turn's answer was made from. `changed` is called when something was forgotten. */
export const showMadeFrom = (chat, turn, changed) => openDialog(t("Why this answer"), async function load(dialog) {
  dialog.show(...sections(chat, await get("/receipt", { turn, texts: true }), () => { changed(); load(dialog).catch((error) => dialog.show(failure(error))); }));
});

function sections(chat, told, changed) {
  const { receipt, texts, usage } = told;
  const head = (usage.models?.length ? usage.models : [{ ...usage, model: told.model || "–" }]).map((each) => h("p.hint",
    t(each.calls > 1 ? "{model}, {calls} calls, together {input} tokens in, {output} out" : "{model}, {input} tokens in, {output} out",
      { model: each.model, calls: number(each.calls ?? 1), input: number(each.prompt_tokens ?? 0), output: number(each.completion_tokens ?? 0) })));
  if (!receipt.layers) return [...head, h("p", t("No context was put together for this answer.")), whyNot(chat, told)];
  const { recall, window } = receipt, topics = receipt.topics?.candidates || [];
  const message = (each) => messageLine(chat, each, recall, texts.messages[each.seq], changed), topic = (each) => topicLine(each, texts.topics[each.id], changed);
  const isKept = (each) => recall.kept.includes(each.seq), isChosen = (each) => each.decision === "chosen";
  const facts = receipt.facts || { shown: [], left_out: 0 };
  const cut = [...recall.candidates.filter((each) => !isKept(each)).map(message), ...topics.filter((each) => !isChosen(each)).map(topic)];
  return [
    head, bar(receipt),
    group(t("Facts Klaw always keeps in mind"), facts.shown.map((each) => factLine(each, texts.facts[each.id], changed))),
    receipt.context_used && fromKnowledge(receipt.context_used),
    group(t("Recalled"), recall.candidates.filter(isKept).map(message)) || h("p", t(NOTHING[recall.guard] || "Nothing was recalled.")),
    recall.expansion && h("p.hint", t("A model added to the question: {words}", { words: recall.expansion.join(", ") })),
    group(t("Topics"), topics.filter(isChosen).map(topic)),
    receipt.thinking && h("p.hint", t("The model thought for {seconds} s, about {tokens} tokens.",
      { seconds: number(receipt.thinking.seconds), tokens: number(receipt.thinking.tokens) })),
    window.messages > 0 && h("p", t("The model saw messages {first}–{last} in full.", { first: window.first_seq, last: window.last_seq })),
    [...recall.degraded, ...(receipt.problems || [])].map((each) => h("p.error", said(each, each))),
    cut.length + facts.left_out > 0 && h("details.cut", h("summary", `${t("What was cut")}: ${cut.length + facts.left_out}`),
      facts.left_out > 0 && h("p", t("Facts without room: {count}", { count: facts.left_out })), h("ul.lines", cut)),
    whyNot(chat, told),
  ].flat().filter(Boolean);
}

const NO_PASSAGE = {
  too_far: "Nothing in the bases is about the question.", no_content: "the question is small talk", no_passages: "The bases have no text yet.",
  no_bases: "The chat's bases are gone, or not shared with you any more.", no_room: "There was no room for a passage.",
};

/** What the knowledge bases gave: every passage with its place, and the queries that graphs were asked. */
function fromKnowledge({ query, passages, nothing: why, weak, removed, uncited, sparql = [], degraded = [] }) {
  const notes = [query && t("Searched: {query}", { query }), why && t(NO_PASSAGE[why] || why), weak && t("None of the passages fits the question well."), removed && t("Invalid citations removed: {count}", { count: removed }),
    uncited && t("The answer refers to none of them."), ...degraded.map((each) => said(each, each))];
  return [h("h2", t("From knowledge bases")), notes.filter(Boolean).map((each) => h("p.hint", each)),
    h("ul.lines", passages.map((each) => h("li", h("p", h("strong", `[${each.number}] `),
      each.document ? h("a", { href: addressOf(each.base, each), onclick: leave }, each.name) : each.name,
      standsAt(each), h("span.hint", each.cited && ` · ${t("cited")}`, ` · ${t("score")} ${number(each.score)}`)),
    each.text && h("p.quote.clamp", each.text)))),
    sparql.map((each) => h("details.fold", h("summary", `SPARQL, ${t("rows")}: ${number(each.rows || 0)} ${each.error || ""}`), h("pre", { tabIndex: 0 }, each.sparql)))];
}

const NOTHING = { disabled: "Recall is switched off.", all_in_context: "The whole conversation fitted, so nothing had to be looked up." };

function bar({ layers, budget }) {
  const counted = (tokens) => number(Math.round(tokens * (budget.correction ?? 1))); // from Klaw's estimate to the model's own tokens
  const shown = layers.filter((each) => each.tokens > 0), free = { name: "free", tokens: Math.max(0, budget.usable_tokens - budget.used_tokens) };
  const name = (each) => t(LAYERS[each.name] || each.name);
  const spent = t("{used} of {usable} tokens", { used: counted(budget.used_tokens), usable: counted(budget.usable_tokens) });
  const parts = [...shown, free].map((each) => {
    const part = h("span", { class: `layer ${each.name}`, title: `${name(each)}: ${counted(each.tokens)}` });
    part.style.flexGrow = each.tokens;
    return part;
  });
  return [h("div.bar", { role: "img", "aria-label": spent }, parts), h("p.hint", spent),
    h("ul.legend", shown.map((each) => h("li", h("span", { class: `layer ${each.name}` }),
      `${name(each)}: ${counted(each.tokens)}${each.shortened ? ` (${t("shortened")})` : ""}`)))];
}

const group = (title, lines) => lines.length > 0 && [h("h2", title), h("ul.lines", lines)];
const leave = (event) => event.target.closest("dialog").close();

function line(text, because, numbers, ...actions) {
  return h("li", h("p.quote", text ?? t("is not there any more")), h("p.because", because),
    numbers && h("p.hint", numbers), text !== undefined && h("div.buttons", actions));
}

function numbersOf({ parts = {}, ...each }) {
  const said = Object.entries(parts).map(([name, value]) => `${t(name)} ${value > 0 ? "+" : ""}${number(value)}`);
  return inLine(Object.entries(NUMBERS).map(([name, text]) => (each[name] ?? null) !== null && `${t(text)} ${number(each[name])}`), said.join(", "));
}

function messageLine(chat, each, recall, said, changed) {
  const because = t(DECISIONS[each.decision] || each.decision, { shared: each.shared_words ?? 0, asked: recall.query_words, left: each.left_tokens, by: each.repeated_by, ...recall.settings });
  const where = h("a", { href: placeOf(chat, each.seq) }, `#${each.seq}`);
  return line(said?.text, [where, said && ` ${when(said.at)}`, ` — ${because}`], numbersOf(each),
    button(t("Wrong"), () => correctMessage(said, changed)), recallButton(said?.unwanted, said?.id, changed), button(t("Forget"), () => forgetting(said.id, changed)));
}

function recallButton(unwanted, what, changed) {
  return button(t(unwanted ? "Recall again" : "Never again"), () => attempt(post(`/recall/${encodeURIComponent(what)}/${unwanted ? "again" : "never"}`).then(() => {
    toast([t(unwanted ? "From now on it can be recalled." : "From now on it is not recalled. It is not forgotten: a search finds it."), " ",
      recallButton(!unwanted, what, changed)], 15000);
    changed();
  })));
}

function factLine(each, fact, changed) {
  const because = each.because === "importance" ? `${t("importance")} ${each.importance}` : t(each.because);
  return line(fact?.text, because, t("{count} tokens", { count: each.tokens }), button(t("Wrong"), () => correct(`/facts/${each.id}`, "text", fact.text, changed)),
    button(t("Never again"), () => attempt(patch(`/facts/${each.id}`, { importance: Math.min(fact.importance, 89), ...(fact.category === "identity" && { category: "other" }) })
      .then(() => { toast(t("From now on it is not always used.")); changed(); }))),
    button(t("Forget"), () => forgetting(`fact:${each.id}`, changed)));
}

function topicLine(each, summary, changed) {
  return line(summary, t(OF_TOPICS[each.decision] || each.decision), numbersOf({ ...each, distance: undefined }),
    h("a.button", { href: `#/memory/topics/${each.id}`, onclick: leave }, t("Open")),
    button(t("Wrong"), () => correct(`/topics/${each.id}`, "summary", summary, changed)),
    recallButton(each.decision === "unwanted", `topic:${each.id}`, changed),
    button(t("Forget"), () => forgetting(`topic:${each.id}`, changed)));
}

const button = (text, act) => h("button", act, text);

const correctMessage = (said, changed) => formDialog(t("Wrong"), [
  { name: "text", label: t("Say what is right"), rows: 3, hint: t("It is kept as a fact that is always used.") },
  { name: "forget", label: t("Then forget this message"), value: false },
], async ({ text, forget }) => {
  await post("/facts", { text, importance: 90 });
  toast(t("Corrected."));
  return () => forget && forgetting(said.id, changed);
}, { above: h("p.quote", said.text) });

const correct = (path, name, value, changed) => formDialog(t("Wrong"), [{ name, label: t("Say what is right"), rows: 3, value }], async (given) => {
  await patch(path, given);
  toast(t("Corrected."));
  return changed;
}, { edits: true });

/** Ask what became of a message of one's choice: by its number, or found by its words. */
function whyNot(chat, told) {
  const answer = h("div", { role: "status" });
  const tell = async (why) => {
    const { why: found } = await get("/receipt", { turn: told.id, why });
    const { seq, chat: of } = found.message, numbers = numbersOf(found.candidate || found.searched_now || {});
    answer.replaceChildren(h("p", h("a", { href: placeOf(of, seq) }, `${nameOf(of)}#${seq}`)),
      ...found.text.map((text) => h("p", said(text))), numbers && h("p.hint", numbers));
  };
  const asking = form([{ name: "why", label: t("Message"), hint: t("Message number, or a few words from it") }], async ({ why }) => {
    answer.replaceChildren();
    if (/^#?\d+$|#\d+$|^\w{16,}$/.test(why)) return tell(why.replace(/^#/, ""));
    const { results } = await get("/search", { query: why, chat, limit: 20 });
    const found = results.filter((each) => each.kind === "message");
    answer.replaceChildren(found.length ? h("ul.lines", found.map((each) => h("li",
      h("button.quiet", () => tell(each.seq).catch((error) => answer.replaceChildren(failure(error))), `#${each.seq} ${each.snippet}`)))) : t("Nothing was found."));
  }, { button: t("Ask") });
  return h("section.why", h("h2", t("Why wasn't a message used?")), asking, answer);
}
