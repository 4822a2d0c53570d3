import {
	attempt, button, failure, form, formDialog, get, h, inLine, nameOf, number, openDialog, patch, placeOf, post, said, t,
	toast, when,
} from "../forms.js";
import { forgetting } from "./forgetting.js";
import { passageLine } from "./knowledge/reader.js";

const NUMBERS = {
	distance: "distance", shared_words: "shared words", vector_rank: "rank by meaning", text_rank: "rank by words",
	dated_rank: "rank by date", score: "score", tokens: "tokens",
};
const NOTHING = {
	disabled: "Recall is switched off.",
	all_in_context: "The whole conversation fitted, so nothing had to be looked up.",
};

export const showMadeFrom = (chat, turn, changed) => openDialog(t("Why this answer"), async function load(dialog) {
	const again = () => {
		changed();
		load(dialog).catch((error) => dialog.show(failure(error)));
	};
	dialog.show(sections(chat, await get("/receipt", { turn, texts: true }), again));
});

function sections(chat, told, changed) {
	const { receipt, texts, usage, model } = told;
	const used = usage.models?.length ? usage.models : [{ ...usage, model: model || "–" }];
	const head = used.map(({ model: name, calls = 1, prompt_tokens: asked, completion_tokens: answered }) => h("p.hint",
		inLine(name, calls > 1 && t("calls", calls), t("Tokens in", asked || 0), t("Tokens out", answered || 0))));
	if (!receipt.layers) return [head, h("p", t("No context was put together for this answer.")), whyNot(chat, told)];
	const { recall, thinking, facts = { shown: [], left_out: 0 } } = receipt, { expansion: added } = recall;
	const { messages, first_seq: first, last_seq: last } = receipt.window;
	const candidates = [recall.candidates, receipt.topics?.candidates || []];
	const isUsed = (each) => each.decision === "chosen" || recall.kept.includes(each.seq);
	const [recalled, topics, unrecalled, others] = [isUsed, (each) => !isUsed(each)].flatMap((which) => [
		candidates[0].filter(which).map((each) => messageLine(chat, each, texts.messages[each.seq], changed)),
		candidates[1].filter(which).map((each) => topicLine(each, texts.topics[each.id], changed)),
	]);
	const count = unrecalled.length + others.length + facts.left_out;
	return [
		head, bar(receipt),
		group("Facts Klaw always keeps in mind", facts.shown.map((each) => factLine(each, texts.facts[each.id], changed))),
		receipt.context_used && fromKnowledge(receipt.context_used),
		group("Recalled", recalled) || h("p", t(NOTHING[recall.guard] || "Nothing was recalled.")),
		added && h("p.hint", t("A model added to the question: {words}", { words: added.join(", ") })),
		group("Topics", topics),
		thinking && h("p.hint", t("The model thought for {seconds} s, about {tokens} tokens.", thinking)),
		messages > 0 && h("p", t("The model saw messages {first}–{last} in full.", { first, last })),
		[...recall.degraded, ...(receipt.problems || [])].map((each) => h("p.error", said(each, each))),
		count > 0 && h("details.cut", h("summary", t("What was cut", count)),
			facts.left_out > 0 && h("p", t("Facts without room: {count}", { count: facts.left_out })),
			h("ul.lines", unrecalled, others)),
		whyNot(chat, told),
	];
}

function fromKnowledge({ query, passages, because, weak, removed, uncited, sparql = [], degraded = [] }) {
	const notes = [query && t("Searched: {query}", { query }), said(because),
		weak && t("None of the passages fits the question well."),
		removed && t("Invalid citations removed: {count}", { count: removed }),
		uncited && t("The answer refers to none of them."), ...degraded.map((each) => said(each, each))];
	return [
		h("h2", t("From knowledge bases")), notes.filter(Boolean).map((each) => h("p.hint", each)),
		h("ul.lines", passages.map((each) => passageLine(each.base, each, leave,
			h("span.hint", ` · ${inLine(each.cited && t("cited"), `${t("score")} ${number(each.score)}`)}`),
			`[${each.number}] `))),
		sparql.map(({ rows = 0, error = "", sparql: asked }) => h("details.fold",
			h("summary", `SPARQL, ${t("rows", rows)} ${error || ""}`), h("pre", { tabIndex: 0 }, asked))),
	];
}

function bar({ layers, budget: { used_tokens: used, usable_tokens: usable, correction = 1 } }) {
	const counted = (tokens) => number(Math.round(tokens * correction)); // in the model's own tokens
	const there = layers.filter((each) => each.tokens > 0);
	const free = { name: "free", title: "Free", tokens: Math.max(0, usable - used) };
	const named = ({ title, tokens }) => t(title, counted(tokens));
	const spent = t("{used} of {usable} tokens", { used: counted(used), usable: counted(usable) });
	return [
		h("div.bar", { role: "img", ariaLabel: spent }, [...there, free].map((each) =>
			h(`span.layer.${each.name}`, { title: named(each), style: `flex-grow: ${each.tokens}` }))),
		h("p.hint", spent),
		h("ul.legend", there.map((each) =>
			h("li", h(`span.layer.${each.name}`), named(each), each.shortened && ` (${t("shortened")})`))),
	];
}

const group = (title, lines) => lines.length > 0 && [h("h2", t(title)), h("ul.lines", lines)];
const leave = (event) => event.target.closest("dialog").close();

/** `what` can be forgotten, `changed` is called then; `actions` are what else can be done. */
const line = (what, changed, text, because, numbers, ...actions) => h("li",
	h("p.quote", text ?? t("is not there any more")), h("p.because", because), numbers && h("p.hint", numbers),
	text !== undefined && h("div.buttons", actions, button("Forget", () => forgetting(what, changed))));

function numbersOf({ parts = {}, ...each }) {
	const signed = (value) => number(value, { signDisplay: "exceptZero" });
	return inLine(
		Object.keys(NUMBERS).map((name) => (each[name] ?? null) !== null && `${t(NUMBERS[name])} ${number(each[name])}`),
		Object.entries(parts).map(([name, value]) => `${t(name)} ${signed(value)}`).join(", "));
}

function messageLine(chat, each, quoted, changed) {
	const because = [quoted && when(quoted.at), said(each.because)].filter(Boolean).join(" — ");
	const { id, text, unwanted } = quoted || {}, place = h("a", { href: placeOf(chat, each.seq) }, `#${each.seq}`);
	return line(id, changed, text, [place, " ", because], numbersOf(each),
		button("Wrong", () => correctMessage(quoted, changed)), recallButton(unwanted, id, changed));
}

function recallButton(unwanted, what, changed) {
	const path = `/recall/${encodeURIComponent(what)}/${unwanted ? "again" : "never"}`;
	return button(unwanted ? "Recall again" : "Never again", () => attempt(post(path).then(() => {
		toast([t(unwanted ? "From now on it can be recalled."
			: "From now on it is not recalled. It is not forgotten: a search finds it."), " ",
		recallButton(!unwanted, what, changed)], 15000);
		changed();
	})));
}

function factLine({ id, because, importance: of, tokens }, fact, changed) {
	const path = `/facts/${id}`;
	const never = async () => {
		const { importance, category } = fact;
		await patch(path, { importance: Math.min(importance, 89), ...(category === "identity" && { category: "other" }) });
		toast(t("From now on it is not always used."));
		changed();
	};
	return line(`fact:${id}`, changed, fact?.text, because === "importance" ? `${t("importance")} ${of}` : t(because),
		t("{count} tokens", { count: tokens }), button("Wrong", () => correct(path, "text", fact.text, changed)),
		button("Never again", () => attempt(never())));
}

function topicLine({ id, decision, because, ...each }, summary, changed) {
	const what = `topic:${id}`, href = `#/memory/topics/${id}`;
	return line(what, changed, summary, said(because), numbersOf({ ...each, distance: null }),
		h("a.button", { href, onclick: leave }, t("Open")),
		button("Wrong", () => correct(`/topics/${id}`, "summary", summary, changed)),
		recallButton(decision === "unwanted", what, changed));
}

const correctMessage = ({ id, text: wrong }, changed) => formDialog("Wrong", [
	{ name: "text", label: t("Say what is right"), rows: 3, hint: t("It is kept as a fact that is always used.") },
	{ name: "forget", label: t("Then forget this message"), value: false },
], async ({ text, forget: goes }) => {
	await post("/facts", { text, importance: 90 });
	toast(t("Corrected."));
	return () => goes && forgetting(id, changed);
}, { above: h("p.quote", wrong) });

const correct = (path, name, value, changed) =>
	formDialog("Wrong", [{ name, label: t("Say what is right"), rows: 3, value }], async (given) => {
		await patch(path, given);
		toast(t("Corrected."));
		return changed;
	}, { edits: true });

function whyNot(chat, told) {
	const answer = h("div", { role: "status" });
	const tell = async (why) => {
		const { why: found } = await get("/receipt", { turn: told.id, why });
		const { seq, chat: of } = found.message;
		answer.replaceChildren(h("p", h("a", { href: placeOf(of, seq) }, `${nameOf(of)}#${seq}`)),
			...found.text.map((text) => h("p", said(text))),
			h("p.hint", numbersOf(found.candidate || found.searched_now || {})));
	};
	const row = ({ seq, snippet }) => h("li", h("button.quiet", () =>
		tell(seq).catch((error) => answer.replaceChildren(failure(error))), `#${seq} ${snippet}`));
	const fields = [{ name: "why", label: t("Message"), hint: t("Message number, or a few words from it") }];
	return h("section.why", h("h2", t("Why wasn't a message used?")), form(fields, async ({ why }) => {
		answer.replaceChildren();
		if (/^#?\d+$|#\d+$|^\w{16,}$/.test(why)) return tell(why.replace(/^#/, ""));
		const { results } = await get("/search", { query: why, chat, limit: 20 });
		const found = results.filter((each) => each.kind === "message");
		answer.replaceChildren(found.length ? h("ul.lines", found.map(row)) : t("Nothing was found."));
	}, { deed: "Ask" }), answer);
}
