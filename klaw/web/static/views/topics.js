import {
	attempt, button, failure, formDialog, get, h, inLine, monthOf, moveTo, nameOf, openDialog, patch, placeOf, post,
	searchField, t, when,
} from "../forms.js";
import { askFor } from "../records.js";
import { forgetting } from "./forgetting.js";
import { done, showChanges } from "./memory.js";

const ALL = "#/memory/topics";

export async function showTopics(id) {
	if (id) return oneTopic(id);
	const chosen = new Set(), all = [], place = h("div");
	const draw = (found, none) => {
		chosen.clear();
		place.replaceChildren(...(found.length ? timeLine(found, chosen) : [h("p.none", t(none))]));
	};
	const drawAll = () =>
		draw(all, "No topics yet. Talk; with topics on, Klaw makes them from finished conversations.");
	const find = async () => {
		const query = search.value.trim();
		if (!query) return drawAll();
		draw((await get("/topics/search", { query, limit: 30 })).topics, "Nothing was found.");
	};
	const search = searchField("Search in topics", { onchange: () => attempt(find()) });
	const load = async () => {
		const { count, topics } = await get("/topics", { limit: 100, before: all.at(-1)?.last_rowid });
		all.push(...topics);
		more.hidden = all.length >= count;
		drawAll();
	};
	const more = button("More", () => attempt(load()));
	await load();
	return [h("div.row", search), h("div.buttons.start", button("Merge selected", () => merge([...chosen])),
		button("History", () => changes())), place, more];
}

const box = (chosen, what, label) => h("input", { type: "checkbox", ariaLabel: label,
	onchange: ({ target }) => (target.checked ? chosen.add(what) : chosen.delete(what)) });

/** Topics by month; a bar shows when each was talked about. */
function timeLine(found, chosen) {
	const spans = found.map((each) => [Date.parse(each.first_at), Date.parse(each.last_at)]);
	const first = Math.min(...spans.flat()), whole = Math.max(1, Math.max(...spans.flat()) - first);
	const row = (each) => {
		const begin = Date.parse(each.first_at), length = Date.parse(each.last_at) - begin;
		const style = `margin-left: ${(98 * (begin - first)) / whole}%; width: ${Math.max(2, (100 * length) / whole)}%`;
		const link = h("a", { href: `${ALL}/${each.id}` }, each.summary);
		return h("li", h("div.row", box(chosen, each.id, t("Choose topic {id}", each)), link),
			h("div.track", { ariaHidden: "true" }, h("span.span", { style })), about(each));
	};
	return [...Map.groupBy(found, (each) => monthOf(each.last_at))]
		.flatMap(([month, topics]) => [h("h2", month), h("ul.lines", topics.map(row))]);
}

function about({ chat, first_at: first, last_at: last, messages: count }) {
	const isOneDay = first.slice(0, 10) === last.slice(0, 10);
	return h("p.hint", inLine(nameOf(chat), isOneDay ? when(last) : `${when(first)} – ${when(last)}`,
		t("messages: {count}", { count })));
}

async function oneTopic(id) {
	const { topic, messages } = await get(`/topics/${encodeURIComponent(id)}`);
	const chat = nameOf(topic.chat), cuts = new Set(), problem = h("div"), path = `/topics/${topic.id}`;
	const split = () => {
		problem.replaceChildren();
		post(`${path}/split`, { at: [...cuts] })
			.then(() => finished(ALL), (error) => problem.replaceChildren(failure(error)));
	};
	const edit = () => askFor("Edit", "topics_edit", topic, async (given) => {
		await patch(path, given);
		return finished;
	}, { edits: true, own: { summary: { rows: 4 } } });
	const row = ({ seq, at, content }, index) => h("li",
		h("p.hint", h("a", { href: placeOf(chat, seq) }, `${chat}#${seq}`), ` ${when(at)}`), h("p.quote", content),
		index > 0 && h("label.tick", t("A new topic begins here"), box(cuts, `${chat}#${seq}`)));
	return [
		h("h1", topic.summary), about(topic),
		h("div.buttons.start", button("Edit", edit), button("History", () => changes(topic.id)),
			button("Forget", () => forgetting(`topic:${topic.id}`, () => moveTo(ALL))),
			messages.length > 1 && button("Split", split)), problem,
		messages.length > 1 && h("p.hint", t("Tick where a new topic begins; without a tick a model decides.")),
		h("ul.lines", messages.map(row)),
	];
}

const finished = (hash) => done("Done.", () => post("/topics/undo"), hash);

function merge(topics) {
	if (topics.length < 2) return openDialog(t("Merge"), h("p", t("Choose two or more topics of one chat.")));
	const hint = t("empty: the old ones, one after the other");
	return formDialog("Merge", [{ name: "summary", label: t("Summary"), rows: 3, hint }], async ({ summary }) => {
		const { topic } = await post("/topics/merge", { topics, ...(summary && { summary }) });
		return () => finished(`${ALL}/${topic.id}`);
	}, { deed: "Merge", above: h("p", topics.join(", ")) });
}

const changes = (topic) => showChanges("Changes of topics", async () => {
	const found = await get("/topics/history", { topic, limit: 50 });
	if (!found.changes.length) return [[h("p.hint", t("Nothing is here yet."))]];
	return found.changes.map(({ entry, at, op, by, before, before_count: count, after, undoes, undone_by: undone }) => {
		const ids = (some) => some.join(", ") || "–", deed = op === "merge" && count < 2 ? "edit" : op;
		return [[
			h("p", `${entry}: ${t(deed)} · ${ids(before.map(({ id }) => id))} → ${ids(after)}`),
			before.map(({ summary }) => h("p.quote", summary)),
			h("p.hint", inLine(when(at), by === "archivist" ? "Klaw" : t(by),
				undoes && t("takes back {entry}", { entry: undoes }), undone && t("taken back by {entry}", { entry: undone }))),
		], !undone && entry];
	});
}, "/topics", "Take back");
