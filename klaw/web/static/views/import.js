// Moving in what was said in other programs: first what an export holds, then the import, and taking it back.

import { get, post } from "/static/api.js";
import { h, opened, toast } from "/static/dom.js";
import { form } from "/static/forms.js";
import { number, said, t, when } from "/static/i18n.js";
import { Panel } from "/static/panel.js";
import { problem } from "/static/views/files.js";

const FIELDS = {
  me: () => ({ name: "me", label: t("Your name in the export"), autocomplete: "off" }),
  dates: () => ({ name: "dates", label: t("Dates"), choices: [["dmy", t("day first")], ["mdy", t("month first")], ["ymd", t("year first")]] }),
};

class Import extends Panel {
  given = {}; // what the export does not say itself

  async load() {
    const [{ imports }, now] = await Promise.all(["/import", "/import/run"].map((path) => get(path)));
    return { imports, now };
  }

  draw({ imports, now }) {
    const busy = now.state === "running", file = h("input", { type: "file", hidden: true, onchange: () => this.upload(file.files[0]) });
    if (busy) this.again();
    this.bar = h("progress", { hidden: true, value: 0 });
    return [
      h("h1", t("Import")),
      h("div.drop", { ondragover: (event) => event.preventDefault(), ondrop: (event) => {
        event.preventDefault();
        this.upload(event.dataTransfer.files[0]);
      } }, h("button.main", { "data-key": "choose", disabled: busy, onclick: () => file.click() }, t("Choose an export")), file, this.bar,
      h("span.hint", t("or drop it here: the file that ChatGPT, Claude, Telegram, WhatsApp, OpenClaw or Klaw gave you."))),
      h("section", { role: "status" }, now.state !== "none" && [h("h2", now.name), this.progress(now, imports)]),
      imports.length > 0 && h("section", h("h2", t("Imported")), h("ul.lines", imports.map((each) => h("li.row", { "data-import": each.id },
        h("span", h("strong", each.id), h("div.hint", [t("messages: {count}", { count: number(each.messages) }), t("chats: {count}", { count: each.chats })].join(", "))),
        h("button", { "aria-label": `${t("Undo")}: ${each.id}`, onclick: () => this.undo(each.id) }, t("Undo")))))),
    ];
  }

  progress({ state, dry_run: dry, before, answer, error, field, upload, name }, imports) {
    const begin = (button, fields = []) => form(fields, (given) => this.begin({ upload, name, dry_run: !button, ...given }), { button: button || t("Look again") });
    if (state === "running") {
      const count = imports.filter(({ id }) => !before.includes(id)).reduce((sum, each) => sum + each.messages, 0);
      return h("p", dry ? t("Looking what is in it …") : t("Importing … {count} messages so far. You may leave this page.", { count: number(count) }));
    }
    if (state === "failed") return [h("p.error", said(error)), field && begin("", [FIELDS[field]()])];
    const { source, messages, chats, first_at: first, last_at: last, kept, left_out: out, unread, unread_count: unreadable, added, known } = answer;
    return [
      h("p", t("{source}: {messages} messages in {chats} chats", { source, messages: number(messages), chats: number(chats) }), messages > 0 && `, ${when(first)} – ${when(last)}`),
      [...Object.entries(kept).map(([what, count]) => `${t(what)}: ${count}`), ...Object.entries(out).map(([why, count]) => `${t("Left out")}: ${said(why)}: ${number(count)}`)].map((each) => h("p.hint", each)),
      unreadable > 0 && h("details", h("summary", `${t("Not read")}: ${number(unreadable)}`), h("ul", unread.map((each) => h("li", `${each.what}: ${said(each.why)}`)))),
      dry ? begin(t("Import it"), [{ name: "topics", label: t("Also build topics, which costs calls to the model"), value: false }])
        : h("p", h("strong", t("Done: {added} added, {known} were here already.", { added: number(added), known: number(known) }))),
    ];
  }

  /** Look what is in an uploaded export, or import it. */
  async begin(given) {
    this.given = { ...this.given, ...given };
    await post("/import/run", { zone: Intl.DateTimeFormat().resolvedOptions().timeZone, ...this.given });
    this.drawn = null;
    await this.refresh();
  }

  upload(file) {
    if (!file) return;
    const request = new XMLHttpRequest(), { bar } = this;
    Object.assign(bar, { hidden: false, max: file.size, ariaLabel: file.name });
    request.open("POST", "/api/v1/import/files");
    request.upload.onprogress = (event) => { bar.value = event.loaded; };
    request.onloadend = () => {
      bar.hidden = true;
      this.given = {};
      if (request.status === 201) this.begin({ upload: JSON.parse(request.response).upload, name: file.name, dry_run: true }).catch((error) => toast(error.message));
      else toast(`${file.name}: ${problem(request)}`);
    };
    request.send(file);
  }

  async undo(origin) {
    const { forgetting } = await opened("forgetting");
    forgetting(null, () => this.refresh(), { title: t("Undo the import"), ask: ({ with_facts, dry_run }) => post("/import/undo", { origin, with_facts, dry_run }) });
  }
}

customElements.define("klaw-import", Import);
