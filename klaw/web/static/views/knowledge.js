import {
	Panel, attempt, backTo, button, confirmed, dropped, formDialog, get, h, heading, inLine, list, mainButton, menu,
	openDialog, patch, picked, post, remove, said, searchField, section, size, status, t, toast, upload, when,
} from "../panel.js";
import { askFor } from "../records.js";
import { passageLine, reader } from "./knowledge/reader.js";
import { madeName } from "./chat_actions.js";

const KINDS = { file: "File", folder: "Folder", web: "Web page", rdf: "Graph in a file", sparql: "SPARQL endpoint" };
const STATES = { waiting: "is being read", read: "read", failed: "could not be read" };

const EMPTY =
	"A base holds documents, web pages and graphs. Make one, add files and ask: chats answer from them and cite pages.";

const of = (base) => `/kb/${encodeURIComponent(base)}`;
const addressOf = (...names) => `#/knowledge/${names.map(encodeURIComponent).join("/")}`;

export default class extends Panel {
	every = 4000;

	async load() {
		const [base, document, range] = this.where;
		if (!base) return get("/kb");
		if (document) return { read: await reader.load(base, document, range) };
		return { ...await get(of(base)), documents: await get(`${of(base)}/documents`, { limit: 100 }) };
	}

	draw(told) {
		const [base, document, range] = this.where;
		if (told.read) return reader.draw(this, base, document, range, told.read);
		return told.base ? this.drawBase(told) : this.drawList(told);
	}

	drawList({ bases }) {
		const card = (base) => h("li",
			h("h2", h("a", { href: addressOf(base.id) }, base.name)),
			base.description && h("p.clamp", base.description), h("p.hint", inLine(counted(base), roleOf(base))));
		return [
			heading("Knowledge", mainButton("New base", () => this.write())), list("cards", bases.map(card), EMPTY),
		];
	}

	write(base) {
		askFor(base ? "Edit" : "New base", base ? "kb_edit" : "kb_create", base, async (given) => {
			const made = base ? await patch(of(base.id), given) : await post("/kb", given);
			return () => {
				if (base) this.refresh();
				else location.hash = addressOf(made.base.id);
			};
		}, { edits: Boolean(base) });
	}

	drawBase({ base, sources, unembedded, documents: { documents, next } }) {
		const { id, name, description, members } = base, may = base.role !== "viewer";
		return [
			h("header.row", backTo("#/knowledge", "Knowledge"), h("h1", name),
				mainButton("Ask it in a new chat", () => this.begin(base)), this.menuOf(base)),
			description && h("p", description),
			h("p.hint", inLine(counted(base), roleOf(base),
				Object.entries(members).map(([user, role]) => `${user}: ${t(role)}`))),
			unembedded > 0 && status(t("{count} passages are found by their words only, until their vectors are made.",
				{ count: unembedded })),
			this.search(base),
			may && h("div.drop", dropped((files) => addFiles(this, id, files)), addMenu(this, id),
				h("span.hint", t("or drop files here"))),
			section("Sources", list("cards", sources.map((each) => this.source(each, may)),
				"Nothing is here yet. Add files or a web page.")),
			documents.length > 0 && section("Documents", list("lines", documents.map((each) => this.document(base, each))),
				next && h("p.hint", t("Only the first {count} are shown.", { count: documents.length }))),
		];
	}

	menuOf(base) {
		const { id, name, role } = base;
		const leave = async () => {
			await post(`${of(id)}/leave`);
			location.hash = "#/knowledge";
		};
		return menu(t("Menu", name), role === "owner" ? [
			["Edit", () => this.write(base)], ["Share", () => this.share(base)],
			["Delete", () => attempt(this.removed(of(id), t("Delete this base", name), "#/knowledge"))],
		] : [["Leave", () => this.change(leave, `${t("Leave", name)}?`)]]);
	}

	share(base) {
		formDialog("Share", [
			{ name: "member", label: t("User") },
			{ name: "role", label: t("Role"), choices: [["viewer", t("viewer: asks and reads")],
				["editor", t("editor: also changes sources")], ["none", t("none: no longer")]] },
		], async (given) => {
			await post(`${of(base.id)}/share`, given);
			this.refresh();
		});
	}

	search({ id }) {
		const field = searchField("Search this base");
		const ask = (query) => openDialog(query, async (dialog) => {
			const { passages } = await get(`${of(id)}/search`, { query });
			const found = passages.map((each) => passageLine(id, each, dialog.close));
			dialog.show(h("div", { role: "status" }, found.length ? h("ul.lines", found) : t("Nothing was found.")));
		});
		return h("form.search", { onsubmit: (event) => {
			event.preventDefault();
			if (field.value.trim()) ask(field.value.trim());
		} }, h("div.row", field, button("Search", null, { type: "submit" })));
	}

	source({ id, name, kind, where, state, documents, waiting, failed }, may) {
		const read = documents - waiting - failed, path = `/kb/sources/${id}`;
		return h("li", h("h3", name),
			h("p.hint", inLine(t(KINDS[kind]), where !== name && where, read > 0 && t("documents: {count}", { count: read }),
				waiting && t("waiting", waiting), failed && t("failed", failed))),
			state?.text && h("p.error", said(state.text, `kb_${state.code}`)),
			may && h("div.buttons",
				button("Read again", () => this.change(() => post(`${path}/refresh`)), { of: name }),
				button("Remove", () => attempt(this.removed(path, t("Remove", name))), { of: name })));
	}

	document(base, { id, name, title, state, passages, pages, size: bytes, read_at: at, problems }) {
		return h("li",
			h("p", state === "read" && passages ? h("a", { href: addressOf(base.id, id) }, name) : name),
			h("p.hint", inLine(title !== name && title, t(STATES[state]), pages && t("pages: {count}", { count: pages }),
				bytes && size(bytes), at && when(at))),
			problems.map(({ text, code, page }) => {
				const plain = text.replace(`${name}: `, ""), told = said(plain, code);
				return h("p.error", told === plain ? text : [page && `${t("page")} ${page}: `, told]);
			}));
	}

	async removed(path, title, then = location.hash) {
		const found = await remove(path, { dry_run: true });
		if (!await confirmed(h("span", h("strong", title), h("br"), going(found)), "Remove")) return;
		toast(going(await remove(path, { dry_run: false })), 15000);
		location.hash = then;
		this.refresh();
	}

	begin({ id }) {
		const chat = madeName();
		attempt(post("/kb/use", { chat, bases: [id] }).then(() => { location.hash = `#/chats/${chat}`; }));
	}
}

const counted = ({ documents = 0, passages = 0 }) => `${t("Documents", documents)}, ${t("passages", passages)}`;

const roleOf = ({ role, owner }) =>
	(role === "owner" ? t("yours") : `${t(role)} (${t("of {user}", { user: owner })})`);

function going({ cited = [], ...found }) {
	const answers = cited.map(({ chat, seq }) => `${chat}#${seq}`).join(", ");
	return `${counted(found)}.${answers && ` ${t("Answers that were given its passages:")} ${answers}`}`;
}

function addMenu(view, base) {
	const asked = (kind, text, hint) => () =>
		formDialog(text, [{ name: "what", label: t(text), hint, maxLength: 2000 }], async ({ what }) => {
			await post(`${of(base)}/sources`, { what, kind });
			view.refresh();
		}, { deed: "Add" });
	return h("div.row", picked("Add files", (files) => addFiles(view, base, files), { multiple: true }),
		menu(t("Add something else"), [
			["Web page", asked("web", "Address of the page")],
			["Folder", asked("folder", "Folder of the server", t("below one of kb.folders, or in your workspace"))],
			["SPARQL endpoint", asked("sparql", "Address of the endpoint", t("or its name in kb.endpoints"))],
		]));
}

async function addFiles(view, base, files) {
	for (const file of files) {
		const { name } = file, bar = h("progress", { max: file.size || 1, value: 0, ariaLabel: name });
		const told = status(`${name} (${size(file.size)}) `, bar);
		document.querySelector(".drop")?.append(told);
		const path = `${of(base)}/files?${new URLSearchParams({ name })}`;
		await upload(path, file, (done) => { bar.value = done; })
			.catch((error) => toast(`${name}: ${error.message}`, 15000));
		told.remove();
		await view.refresh();
	}
}
