// Moving in what was said in other programs: first what an export holds, then the import, and taking it back.

import { attempt, form, get, h, later, number, post, said, t, upload, when } from "../forms.js";
import { Panel } from "../panel.js";

const FIELDS = { // what an export may leave open
  me: { label: t("Your name in the export"), autocomplete: "off" },
  dates: { label: t("Dates"), choices: [["dmy", t("day first")], ["mdy", t("month first")], ["ymd", t("year first")]] },
};

class Import extends Panel {
  given = {}; // what the export does not say itself

  async load() {
    const [{ imports }, now] = await Promise.all([get("/import"), get("/import/run")]);
    return { imports, now };
  }

  draw({ imports, now }) {
    const busy = now.state === "running", file = h("input", { type: "file", hidden: true, onchange: () => this.take(file.files[0]) });
    if (busy) this.again();
    this.bar = h("progress", { hidden: true, value: 0, "aria-label": t("Import") });
    return [
      h("h1", t("Import")),
      h("div.drop", { ondragover: (event) => event.preventDefault(), ondrop: (event) => { event.preventDefault(); this.take(event.dataTransfer.files[0]); } },
        h("button.main", { "data-key": "choose", disabled: busy, onclick: () => file.click() }, t("Choose an export")), file, this.bar,
        h("span.hint", t("or drop it here: the file that ChatGPT, Claude, Telegram, WhatsApp, OpenClaw or Klaw gave you."))),
      h("section", { role: "status" }, now.state !== "none" && [h("h2", now.name), this.progress(now, imports)]),
      imports.length > 0 && h("section", h("h2", t("Imported")), h("ul.lines", imports.map(({ id, messages }) => h("li.row", { "data-import": id },
        h("span", h("strong", id), h("div.hint", t("messages: {count}", { count: number(messages) }))), h("button", { "aria-label": `${t("Undo")}: ${id}`, onclick: () => this.undo(id) }, t("Undo")))))),
    ];
  }

  progress({ state, dry_run: dry, before, answer, error, field, ...of }, imports) {
    const again = (fields, button, run) => form(fields, (given) => this.begin({ upload: of.upload, name: of.name, dry_run: !run, ...given }), { button });
    if (state === "running") {
      const count = imports.filter(({ id }) => !before.includes(id)).reduce((sum, each) => sum + each.messages, 0);
      return h("p", dry ? t("Looking what is in it …") : t("Importing … {count} messages so far. You may leave this page.", { count: number(count) }));
    }
    if (state === "failed") return [h("p.error", said(error)), field && again([{ name: field, ...FIELDS[field] }], t("Look again"))];
    const { source, messages, chats, first_at: first, last_at: last, kept, left_out: out, unread, added, known } = answer;
    const counted = (found, what) => Object.entries(found).map(([name, count]) => h("p.hint", `${what(name)}: ${number(count)}`));
    return [
      h("p", t("{source}: {messages} messages in {chats} chats", { source, messages: number(messages), chats: number(chats) }), messages > 0 && `, ${when(first)} – ${when(last)}`),
      counted(kept, t), counted(out, (why) => `${t("Left out")}: ${said(why)}`),
      unread.length > 0 && h("details", h("summary", `${t("Not read")}: ${number(answer.unread_count)}`), h("ul", unread.map((each) => h("li", `${each.what}: ${said(each.why)}`)))),
      dry ? again([{ name: "topics", label: t("Also build topics, which costs calls to the model"), value: false }], t("Import it"), true)
        : h("strong", t("Done: {added} added, {known} were here already.", { added: number(added), known: number(known) })),
    ];
  }

  /** Look what is in an uploaded export, or import it. */
  async begin(given) {
    Object.assign(this.given, given);
    await post("/import/run", { zone: Intl.DateTimeFormat().resolvedOptions().timeZone, ...this.given });
    this.drawn = null;
    await this.refresh();
  }

  take(file) {
    if (!file) return;
    const { bar } = this;
    Object.assign(bar, { hidden: false, max: file.size });
    this.given = {};
    attempt(upload("/import/files", file, (bytes) => { bar.value = bytes; }).finally(() => { bar.hidden = true; }).then((kept) => this.begin({ upload: kept.upload, name: file.name, dry_run: true })));
  }

  undo(origin) {
    later("forgetting", "forgetting", null, () => this.refresh(), { title: t("Undo the import"), ask: ({ with_facts, dry_run }) => post("/import/undo", { origin, with_facts, dry_run }) });
  }
}

customElements.define("klaw-import", Import);
