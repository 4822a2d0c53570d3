import {
	attempt, button, failure, form, get, h, mainButton, moveTo, openDialog, patch, placeOf, post, remove, select,
	setCurrent, shown, t, toast, when,
} from "../forms.js";
import { askFor, lineOf } from "../records.js";
import { forgetting } from "./forgetting.js";
import { showTopics } from "./topics.js";

const TABS = { facts: ["Facts", showFacts], people: ["People", showPeople], topics: ["Topics", showTopics] };

export default class extends HTMLElement {
	where = [];

	connectedCallback() {
		const links = Object.entries(TABS).map(([noun, [name]]) => h("a.button", { href: `#/memory/${noun}` }, t(name)));
		this.replaceChildren(h("nav.tabs", { ariaLabel: t("Memory") }, links), h("section"));
		this.go(this.where);
	}

	go(where) {
		this.where = where;
		const [noun, id] = TABS[where[0]] ? where : ["facts"], [name, show] = TABS[noun];
		for (const tab of this.querySelectorAll(".tabs a")) setCurrent(tab, tab.hash === `#/memory/${noun}`);
		const place = h("section", { ariaLabel: t(name) }, !id && h("h1", t(name)));
		this.lastElementChild.replaceWith(place);
		show(id).catch(failure).then((content) => place.append(...shown([content])));
	}
}

function showAgain() {
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
const buttons = (path, what, write, told, hash, forgotten, ...more) => [
	button("Edit", write), more, button("History", () => showHistory(path, told)),
	button("Delete", () => attempt(remove(path).then(() => done("Removed.", () => post(`${path}/undo`), hash)))),
	button("Forget", () => forgetting(what, forgotten))];

/** `load` answers of each change how it is shown, and its entry if the button `back` goes to it. */
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

async function paged(path, query, entries, entry, none) {
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

const CATEGORIES = ["identity", "preference", "person", "project", "event", "place", "health", "work", "other"];
const SOURCES = {
	tool: "saved by the model", user: "written by you", archivist: "learned from what was said",
	chat: "learned from a message",
};
let category = "";

async function showFacts(id) {
	const told = await lineOf("Fact", {
		id: null, text: null, topic: null, category: (value) => t(value), source: (value) => t(SOURCES[value]),
		origin: (value) => value === "tool" && t("in words from outside"),
	});
	const row = (fact) => factRow(fact, told);
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
		h("div.row", h("label", { htmlFor: "category" }, t("Category")), filter, mainButton("Add", () => writeFact())),
		await paged("/facts", { category }, "facts", row, category ? "Nothing is here yet."
			: "No facts yet. Add one, or just talk: a model with tools saves what matters."),
	];
}

function factRow(fact, told) {
	const { id, text } = fact, version = (each) => each.fact && `${each.fact.text} · ${told(each.fact)}`;
	return h("li", { "data-id": id }, h("p.quote", text), h("p.hint", told(fact), sourceOf(fact)),
		h("div.buttons", buttons(`/facts/${id}`, `fact:${id}`, () => writeFact(fact), version, undefined, showAgain)));
}

function sourceOf({ topic, message }) {
	if (topic) return h("a", { href: `#/memory/topics/${topic}` }, `${t("topic")} ${topic}`);
	const open = async () => {
		const { chat, seq } = await get("/fetch", { what: message, around: 0 });
		location.hash = placeOf(chat, seq);
	};
	return message && h("button.quiet", () => attempt(open()), t("Where it was said"));
}

const writeFact = (fact) => askFor(fact ? "Edit" : "Add", fact ? "fact_edit" : "fact_add", fact, async (given) => {
	const told = fact ? await patch(`/facts/${fact.id}`, given) : await post("/facts", given);
	return () => done(told.added === false ? "Known already." : "Done.", () => post(`/facts/${told.fact.id}/undo`));
}, { edits: Boolean(fact), own: { replaces: null } });

const PEOPLE = "#/memory/people";
const pathOf = ({ id }) => `/people/${id}`;
const known = ({ name, aliases = [], relation }) => [name, ...aliases, relation].filter(Boolean).join(", ");

async function showPeople(id) {
	const told = await lineOf("SpokenOf", {
		id: null, name: null, source: null, updated_at: null, relation: (value) => value,
		aliases: (value) => value.join(", "), topics: (count) => count > 0 && t("topics: {count}", { count }),
	});
	if (id) return onePerson(id, told);
	return [
		h("div.row", mainButton("Add", () => writePerson())),
		await paged("/people", {}, "people", (person) => h("li",
			h("a", { href: `${PEOPLE}/${person.id}` }, h("strong", person.name)), h("p.hint", told(person))),
		"Nobody yet. Add the people you talk about; with topics on, Klaw finds them by itself."),
	];
}

async function onePerson(id, told) {
	const { person, was, mentions } = await get(`/people/${encodeURIComponent(id)}`);
	return [
		h("h1", person.name), h("p.hint", told(person)),
		was.map(({ name }) => h("p", `${t("was also known as")} ${name}`)),
		h("div.buttons.start", buttons(pathOf(person), `person:${person.id}`, () => writePerson(person),
			(each) => each.person && known(each.person), PEOPLE, () => moveTo(PEOPLE), button("Merge", () => merge(person)))),
		mentions.length > 0 && [h("h2", t("Named in")), h("ul.lines", mentions.map(mention))],
	];
}

const mention = ({ at, topic, day }) => h("li", when(at), " ",
	topic !== null && h("a", { href: `#/memory/topics/${topic}` }, `${t("topic")} ${topic}`), day);

function writePerson(person) {
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
		done("Done.", () => post(`/people/${told.merged}/undo`), `${PEOPLE}/${told.person.id}`);
	}, { deed: "Merge" }));
});
