// All settings, as the server describes them: what is in effect, where it comes from, and changing it. Changes are
// collected and sent together, since some only make sense together.

import { get, h, learn, post, said, searchField, parsed, t, toast } from "../page.js";
import { Panel } from "../panel.js";

const DEFAULT = Symbol("default");
const ORIGINS = { default: "default", file: "from the file", environment: "from the environment" };
let made = 0;
const REFERENCE = /\$\{[^}]*\}/;

await learn("settings");

class Settings extends Panel {
  wanted = "";
  mine = false;
  told = null; // what the last change has brought
  changes = new Map(); // of each path the value, or DEFAULT

  load() {
    return get("/config");
  }

  draw({ settings, undo, wrong, restart, file }) {
    this.fields = new Map();
    this.changes.clear();
    const sections = new Map();
    for (const each of settings) {
      const name = each.path.split(/[.[]/)[0];
      sections.set(name, [...(sections.get(name) || []), each]);
    }
    const search = searchField(t("Search settings"), { value: this.wanted, "data-key": "search", oninput: () => { this.wanted = search.value; this.choose(); } });
    const mine = h("input", { type: "checkbox", checked: this.mine, "data-key": "mine", onchange: () => { this.mine = mine.checked; this.choose(); } });
    this.count = h("p", { role: "status" });
    this.save = h("button.main", { "data-key": "save", onclick: () => this.send() }, t("Save"));
    this.bar = h("div.changes", { hidden: true }, this.count,
      h("div.buttons", h("button", () => { this.drawn = null; this.refresh(); }, t("Discard")), this.save));
    this.sections = [...sections].map(([name, all]) => {
      const body = h("div.fields", this.rows(all));
      return h("details", { "data-key": `section ${name}` }, h("summary", h("h2", name)), body);
    });
    queueMicrotask(() => this.choose());
    return [
      h("header.row", h("h1", t("Settings")),
        undo.length > 0 && h("button", { "data-key": "undo", title: undo.join(", "), onclick: () => this.change(async () => this.tell(await post("/config/undo"))) }, t("Undo the last change"))),
      wrong && h("p.error", { role: "alert" }, t("The file was changed and is wrong, so it is not in effect:"), " ", wrong.replace(/(^|; )(\S+: )([^;]+)/g, (_, before, path, text) => before + path + said(text))),
      restart.length > 0 && h("p.warn", t("In effect after a restart:"), " ", restart.join(", ")),
      h("p.hint", { role: "status" }, this.told || ""),
      h("div.row", search, h("label.row", mine, t("only what is not the default"))),
      this.sections, h("p.hint", t("These stand in"), " ", h("code", file)), this.bar,
    ];
  }

  /** Rows of settings, those of a map's entries under their names. `prefix`: of an entry that is being added. */
  rows(settings, prefix = "") {
    return settings.map((each) => this.row({ ...each, path: prefix + each.path }));
  }

  row(setting) {
    const { path, description, restart, origin, written, value } = setting;
    made += 1;
    const id = `setting-${made}`, shown = origin === "default" ? setting.default ?? value : written;
    const problem = h("p.error", { id: `${id}-problem` });
    const usual = h("button", { "data-key": `default ${path}`, hidden: origin === "default", "aria-label": `${t("Use the default")}: ${path}` }, t("Use the default"));
    const from = h("span.badge", t(ORIGINS[origin]));
    const field = setting.type === "map" ? this.names({ ...setting, id }) : inputOf({ ...setting, id }, shown, () => this.set(path, field.value()));
    const row = h("div.field.setting", { "data-path": path, "data-origin": origin },
      h("label", { htmlFor: id }, h("code", path)), h("p.hint", { id: `${id}-meaning` }, said(description)),
      field.element, problem,
      h("div.about.hint", from, restart && h("span", t("needs a restart")), rangeOf(setting),
        setting.default !== undefined && setting.default !== null && setting.type !== "map" && h("span", `${t("default")}: ${textOf(setting.default)}`),
        origin === "environment" && !setting.secret && h("span", `${t("in effect")}: ${textOf(value)}`), usual));
    (field.input || field.element).setAttribute("aria-describedby", `${id}-meaning ${id}-problem`);
    usual.addEventListener("click", () => {
      this.set(path, DEFAULT);
      usual.hidden = true;
      from.textContent = t(ORIGINS.default);
      (field.input || field.element).disabled = true;
    });
    row.complain = (text) => { problem.textContent = text; };
    row.words = `${path} ${description} ${said(description)}`.toLowerCase();
    this.fields.set(path, row);
    return row;
  }

  names({ id, path, value, entry }) {
    const list = h("ul.names", value.map((name) => {
      const own = `${path}${keyed(name)}`;
      const item = h("li", h("strong", name), " ", h("button", { "data-key": `remove ${own}`, "aria-label": `${t("Remove")}: ${own}`, onclick: () => {
        this.set(own, DEFAULT);
        item.remove();
        this.querySelectorAll(".setting").forEach((each) => { if (each.dataset.path.startsWith(own) && each.dataset.path !== path) each.remove(); });
      } }, t("Remove")));
      return item;
    }));
    const name = h("input", { id, autocomplete: "off" });
    const add = () => {
      const wanted = name.value.trim(), own = `${path}${keyed(wanted)}`;
      if (!wanted || value.includes(wanted) || this.fields.has(`${own}.`)) return;
      this.fields.set(`${own}.`, null);
      this.set(own, {});
      const rows = h("div.fields", h("strong", wanted), this.rows(entry, `${own}.`));
      element.closest(".setting").after(rows);
      name.value = "";
      rows.querySelector("input, select, textarea")?.focus();
    };
    const element = h("div", list, h("div.row", name, h("button", { "data-key": `add ${path}`, "aria-label": `${t("Add")}: ${path}`, onclick: add }, t("Add"))));
    return { element, input: name };
  }

  set(path, value) {
    this.changes.set(path, value);
    this.fields.get(path)?.complain("");
    this.bar.hidden = false;
    this.count.textContent = t("changed: {count}", { count: this.changes.size });
  }

  /** What is sent: values within an entry that is being added stand after it. */
  async send() {
    this.save.disabled = true;
    this.fields.forEach((each) => each?.complain(""));
    const changed = [...this.changes];
    try {
      this.tell(await post("/config/set", {
        values: Object.fromEntries(changed.filter(([, value]) => value !== DEFAULT)),
        unset: changed.filter(([, value]) => value === DEFAULT).map(([path]) => path),
      }));
      this.drawn = null;
      await this.refresh();
    } catch (error) {
      const others = [];
      for (const { field, message } of error.fields || []) {
        const row = this.fields.get(field) || this.fields.get(field.replace(/\[\d+\]$/, ""));
        if (row) row.complain(message);
        else others.push(`${field}: ${message}`);
      }
      if (!error.fields?.length) others.push(error.message);
      if (others.length) toast(others.join("; "), 15_000);
      const first = this.querySelector(".setting .error:not(:empty)");
      first?.closest("details").setAttribute("open", "");
      first?.scrollIntoView({ block: "center" });
    }
    this.save.disabled = false;
  }

  tell({ changed, restart, warnings }) {
    const at = changed.filter((key) => !restart.includes(key)), later = changed.filter((key) => restart.includes(key));
    this.told = [at.length && `${t("In effect now:")} ${at.join(", ")}.`, later.length && `${t("In effect after a restart:")} ${later.join(", ")}.`,
      ...warnings.map((each) => `${each.path}: ${said(each.message)}`)].filter(Boolean).join(" ") || t("Nothing has changed.");
  }

  choose() {
    const words = this.wanted.toLowerCase().split(/\s+/).filter(Boolean), narrow = words.length > 0 || this.mine;
    for (const section of this.sections || []) {
      let found = 0;
      for (const row of section.querySelectorAll(".setting")) {
        row.hidden = !words.every((word) => row.words.includes(word)) || (this.mine && row.dataset.origin === "default");
        found += !row.hidden;
      }
      section.hidden = !found;
      if (narrow) section.open = true;
    }
  }
}

/** A name behind a path, as the server writes paths. */
function keyed(name) {
  return /^[A-Za-z_][\w-]*$/.test(name) ? `.${name}` : `["${name.replace(/["\\]/g, "\\$&")}"]`;
}

const textOf = (value) => (typeof value === "string" ? value : JSON.stringify(value));

function rangeOf({ minimum, above, maximum }) {
  const least = minimum ?? (above === null ? null : `> ${above}`);
  return (least ?? maximum) !== null && h("span", [least, maximum].join(" – "));
}

/** The element for a value of a setting, and how to read it. What is a reference is a text, whatever it stands for. */
function inputOf({ id, type, items, choices, nullable, secret }, shown, changed) {
  const given = { id, autocomplete: "off", spellcheck: false, oninput: changed }, refers = typeof shown === "string" && REFERENCE.test(shown);
  const field = (element, read) => ({ element, value: () => read(element.value.trim()) });
  if (secret && JSON.stringify(shown ?? "").includes("***")) return field(h("input", { ...given, disabled: true, value: t("stands in the file and is not shown") }), () => shown);
  const isBoolean = type === "boolean", options = isBoolean ? [["true", t("on")], ["false", t("off")], ...(nullable ? [["null", t("not set")]] : [])] : choices.map((each) => [each, each]);
  if (options.length && !refers) {
    return field(h("select", given, options.map(([value, text]) => h("option", { value, selected: value === String(shown ?? null) }, text))), isBoolean ? parsed : String);
  }
  const area = (value, placeholder, read) => field(h("textarea", { ...given, rows: Math.min(8, value.split("\n").length + 1), value, placeholder }), read);
  if (type === "array") {
    return area([shown ?? []].flat().join("\n"), t("one on each line"), (text) => text.split("\n").map((each) => each.trim()).filter(Boolean).map((each) => (items === "string" ? each : parsed(each))));
  }
  if (type === "object") return area(shown && Object.keys(shown).length ? JSON.stringify(shown, null, 2) : "", "{}", (text) => parsed(text || "{}"));
  return field(h("input", { ...given, value: shown ?? "", placeholder: secret ? "${NAME}" : nullable ? t("not set") : "", inputMode: type === "string" || refers ? "text" : "decimal" }), (text) => {
    if (!text && (nullable || type !== "string")) return nullable ? null : DEFAULT;
    return type === "string" ? text : parsed(text);
  });
}

customElements.define("klaw-settings", Settings);
