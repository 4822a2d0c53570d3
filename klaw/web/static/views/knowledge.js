// Knowledge bases: what is in them, who may use them, and the texts of their documents.

import { attempt, backTo, confirmed, formDialog, get, h, inLine, menu, number, openDialog, patch, post, remove, said, searchField, size, t, toast, when } from "../forms.js";
import { Panel } from "../panel.js";
import { askFor } from "../records.js";
import { addMenu, upload } from "./knowledge/adding.js";
import { passageLine, reader } from "./knowledge/reader.js";
import { madeName } from "./new_chat.js";

const KINDS = { file: "File", folder: "Folder", web: "Web page", rdf: "Graph in a file", sparql: "SPARQL endpoint" };
const STATES = { waiting: "is being read", read: "read", failed: "could not be read" };

const of = (base) => `/kb/${encodeURIComponent(base)}`;
const addressOf = (...names) => `#/knowledge/${names.map(encodeURIComponent).join("/")}`;

class Knowledge extends Panel {
  every = 4000;

  async load() {
    const [base, document, range] = this.where;
    if (!base) return get("/kb");
    if (document) return { read: await reader.load(base, document, range) };
    const told = await get(of(base));
    return { ...told, documents: await get(`${of(base)}/documents`, { limit: 100 }) };
  }

  draw(told) {
    const [base, document, range] = this.where;
    if (told.read) return reader.draw(this, base, document, range, told.read);
    return told.base ? this.drawBase(told) : this.drawList(told);
  }

  drawList({ bases }) {
    return [
      h("header.row", h("h1", t("Knowledge")), h("button.main", () => this.write(), t("New base"))),
      bases.length ? h("ul.cards", bases.map((base) => h("li",
        h("h2", h("a", { href: addressOf(base.id) }, base.name)),
        base.description && h("p.clamp", base.description),
        h("p.hint", inLine(counted(base), roleOf(base)))))) :
        h("p.none", t("A base holds documents, web pages and graphs. Make one, add files and ask: chats answer from them and cite the page.")),
    ];
  }

  write(base) {
    askFor(t(base ? "Edit" : "New base"), base ? "kb_edit" : "kb_create", base, async (given) => {
      const made = base ? await patch(of(base.id), given) : await post("/kb", given);
      return () => {
        if (base) this.refresh();
        else location.hash = addressOf(made.base.id);
      };
    }, { edits: Boolean(base) });
  }

  drawBase({ base, sources, unembedded, documents }) {
    const may = base.role !== "viewer";
    return [
      h("header.row", backTo("#/knowledge", t("Knowledge")), h("h1", base.name),
        h("button.main", () => this.begin(base), t("Ask it in a new chat")), this.menuOf(base)),
      base.description && h("p", base.description),
      h("p.hint", inLine(counted(base), roleOf(base), Object.entries(base.members).map(([user, role]) => `${user}: ${t(role)}`))),
      unembedded > 0 && h("p.hint", { role: "status" }, t("{count} passages are found by their words only, until their vectors are made.", { count: number(unembedded) })),
      this.search(base),
      may && h("div.drop", { ondragover: (event) => event.preventDefault(), ondrop: (event) => {
        event.preventDefault();
        upload(this, base.id, event.dataTransfer.files);
      } }, addMenu(this, base.id), h("span.hint", t("or drop files here"))),
      h("section", { "aria-label": t("Sources") }, h("h2", t("Sources")),
        sources.length ? h("ul.cards", sources.map((each) => this.source(each, may))) : h("p.none", t("Nothing is here yet. Add files or a web page."))),
      documents.documents.length > 0 && h("section", { "aria-label": t("Documents") }, h("h2", t("Documents")),
        h("ul.lines", documents.documents.map((each) => this.document(base, each))),
        documents.next && h("p.hint", t("Only the first {count} are shown.", { count: documents.documents.length }))),
    ];
  }

  menuOf(base) {
    const entries = base.role === "owner" ? [
      [t("Edit"), () => this.write(base)], [t("Share"), () => this.share(base)],
      [t("Delete"), () => attempt(this.removed(of(base.id), `${t("Delete this base")}: ${base.name}`, "#/knowledge"))],
    ] : [[t("Leave"), () => this.change(async () => { await post(`${of(base.id)}/leave`); location.hash = "#/knowledge"; }, `${t("Leave")}: ${base.name}?`)]];
    return menu(`${t("Menu")}: ${base.name}`, entries);
  }

  share(base) {
    formDialog(t("Share"), [
      { name: "member", label: t("User") },
      { name: "role", label: t("Role"), choices: [["viewer", t("viewer: asks and reads")], ["editor", t("editor: also changes sources")], ["none", t("none: no longer")]] },
    ], async (given) => {
      await post(`${of(base.id)}/share`, given);
      this.refresh();
    });
  }

  search(base) {
    const field = searchField(t("Search this base"), { "data-key": "search" });
    return h("form.search", { onsubmit: (event) => {
      event.preventDefault();
      const query = field.value.trim();
      if (query) openDialog(query, async (dialog) => {
        const { passages } = await get(`${of(base.id)}/search`, { query });
        dialog.show(h("div", { role: "status" }, passages.length ? h("ul.lines", passages.map((each) => passageLine(base.id, each, dialog.close))) : t("Nothing was found.")));
      });
    } }, h("div.row", field, h("button", t("Search"))));
  }

  source(each, may) {
    const read = each.documents - each.waiting - each.failed, path = `/kb/sources/${each.id}`;
    const counts = [read > 0 && t("documents: {count}", { count: number(read) }), each.waiting && `${t("waiting")}: ${number(each.waiting)}`, each.failed && `${t("failed")}: ${number(each.failed)}`];
    return h("li", h("h3", each.name), h("p.hint", inLine(t(KINDS[each.kind]), each.where !== each.name && each.where, counts)),
      each.state?.text && h("p.error", said(each.state.text, `kb_${each.state.code}`)),
      may && h("div.buttons",
        h("button", { "data-key": `again-${each.id}`, onclick: () => this.change(() => post(`${path}/refresh`)) }, t("Read again")),
        h("button", { "data-key": `remove-${each.id}`, onclick: () => attempt(this.removed(path, `${t("Remove")}: ${each.name}`)) }, t("Remove"))));
  }

  document(base, each) {
    const name = each.state === "read" && each.passages ? h("a", { href: addressOf(base.id, each.id) }, each.name) : each.name;
    return h("li", h("p", name), h("p.hint", inLine(each.title !== each.name && each.title, t(STATES[each.state]), each.pages && t("pages: {count}", { count: number(each.pages) }),
      each.size && size(each.size), each.read_at && when(each.read_at))),
    each.problems.map((problem) => {
      const plain = problem.text.replace(`${each.name}: `, ""), told = said(plain, problem.code);
      return h("p.error", told === plain ? problem.text : [problem.page && `${t("page")} ${problem.page}: `, told]);
    }));
  }

  /** First what would go, then the deed. */
  async removed(path, title, then = location.hash) {
    const found = await remove(path, { dry_run: true });
    if (!await confirmed(h("span", h("strong", title), h("br"), going(found)), t("Remove"), t("Cancel"))) return;
    toast(going(await remove(path, { dry_run: false })), 15000);
    location.hash = then;
    this.refresh();
  }

  begin(base) {
    const chat = madeName();
    attempt(post("/kb/use", { chat, bases: [base.id] }).then(() => { location.hash = `#/chats/${chat}`; }));
  }
}

function counted(base) {
  return `${t("Documents")}: ${number(base.documents)}, ${t("passages")}: ${number(base.passages)}`;
}

function roleOf(base) {
  return base.role === "owner" ? t("yours") : `${t(base.role)} (${t("of {user}", { user: base.owner })})`;
}

/** What goes, or went, with a source or a base, and in which answers it was cited. */
function going({ documents = 0, passages = 0, cited = [] }) {
  const told = `${t("Documents")}: ${number(documents)}, ${t("passages")}: ${number(passages)}.`;
  return cited.length ? `${told} ${t("Answers that were given its passages:")} ${cited.map((each) => `${each.chat}#${each.seq}`).join(", ")}` : told;
}

customElements.define("klaw-knowledge", Knowledge);
