// Changes are collected and sent together, since some only make sense so.

import {
	Panel, button, failure, get, h, heading, input, learn, mainButton, parsed, post, said, searchField, status, t, toast,
} from "../panel.js";

const DEFAULT = Symbol("default");
const ORIGINS = { default: "default", file: "from the file", environment: "from the environment" };

await learn("ru_settings");

export default class extends Panel {
	wanted = "";
	mine = false;
	told = "";
	changes = new Map(); // of each path the value, or DEFAULT

	load() {
		return get("/config");
	}

	draw({ settings, undo, wrong, restart, file }) {
		this.fields = new Map();
		this.changes.clear();
		const search = searchField("Search settings", { value: this.wanted, oninput: () => {
			this.wanted = search.value;
			this.choose();
		} });
		const mine = h("input", { type: "checkbox", checked: this.mine, "data-key": "mine", onchange: () => {
			this.mine = mine.checked;
			this.choose();
		} });
		this.count = h("p", { role: "status" });
		this.save = mainButton("Save", () => this.send());
		this.bar = h("div.changes", { hidden: true }, this.count,
			h("div.buttons", button("Discard", () => this.renew()), this.save));
		const sections = Map.groupBy(settings, ({ path }) => path.split(/[.[]/)[0]);
		this.sections = [...sections].map(([name, all]) =>
			h("details", h("summary", h("h2", name)), h("div.fields", this.rows(all))));
		queueMicrotask(() => this.choose());
		const inWords = (_, before, path, text) => before + path + said(text);
		return [
			heading("Settings", undo.length > 0 && button("Undo the last change",
				() => this.change(async () => this.tell(await post("/config/undo"))), { title: undo.join(", ") })),
			wrong && failure([t("The file was changed and is wrong, so it is not in effect:"), " ",
				wrong.replace(/(^|; )(\S+: )([^;]+)/g, inWords)]),
			restart.length > 0 && h("p.warn", t("In effect after a restart:"), " ", restart.join(", ")),
			status(this.told),
			h("div.row", search, h("label.row", mine, t("only what is not the default"))),
			this.sections, h("p.hint", t("These stand in"), " ", h("code", file)), this.bar,
		];
	}

	rows(settings, prefix = "") {
		return settings.map((each) => this[each.type === "map" ? "map" : "row"]({ ...each, path: prefix + each.path }));
	}

	row(setting) {
		const { path, description, restart, origin, written, value, default: usual } = setting;
		const [given, read] = inputOf(setting, origin === "default" ? usual ?? value : written);
		const field = this.field(path, description,
			{ ...given, autocomplete: "off", spellcheck: false, oninput: () => this.set(path, read(field.value())) });
		const from = h("span.badge", t(ORIGINS[origin]));
		const back = button("Use the default", () => {
			this.set(path, DEFAULT);
			back.hidden = true;
			from.textContent = t("default");
			field.element.disabled = true;
		}, { of: path, hidden: origin === "default" });
		field.row.dataset.origin = origin;
		field.row.append(h("div.about.hint", from, restart && h("span", t("needs a restart")), rangeOf(setting),
			(usual ?? null) !== null && h("span", t("default", textOf(usual))),
			origin === "environment" && !setting.secret && h("span", t("in effect", textOf(value))), back));
		return field.row;
	}

	field(path, description, given) {
		const field = input({ name: path, label: h("code", path), hint: said(description), ...given });
		field.row.classList.add("setting");
		field.row.dataset.path = path;
		field.row.words = `${path} ${description} ${said(description)}`.toLowerCase();
		this.fields.set(path, field);
		return field;
	}

	map({ path, description, origin, value, entry }) {
		const field = this.field(path, description, { autocomplete: "off" }), { element, row } = field;
		const removed = (own, item) => {
			this.set(own, DEFAULT);
			item.remove();
			this.querySelectorAll(`[data-path^="${CSS.escape(own)}"]`).forEach((each) => each !== row && each.remove());
		};
		const items = value.map((name) => {
			const own = path + keyed(name), item = h("li", h("strong", name), " ");
			item.append(button("Remove", () => removed(own, item), { of: own }));
			return item;
		});
		const add = () => {
			const name = element.value.trim(), own = path + keyed(name);
			if (!name || value.includes(name) || this.changes.has(own)) return;
			this.set(own, {});
			const rows = h("div.fields", h("strong", name), this.rows(entry, `${own}.`));
			row.after(rows);
			element.value = "";
			rows.querySelector("input, select, textarea")?.focus();
		};
		row.dataset.origin = origin;
		element.before(h("ul.names", items));
		element.after(button("Add", add, { of: path }));
		return row;
	}

	set(path, value) {
		this.changes.set(path, value);
		this.fields.get(path)?.complain("");
		this.bar.hidden = false;
		this.count.textContent = t("changed: {count}", { count: this.changes.size });
	}

	async send() {
		this.save.disabled = true;
		this.fields.forEach((each) => each.complain(""));
		const changed = [...this.changes], isUnset = ([, value]) => value === DEFAULT;
		try {
			this.tell(await post("/config/set", {
				values: Object.fromEntries(changed.filter((each) => !isUnset(each))),
				unset: changed.filter(isUnset).map(([path]) => path),
			}));
			await this.renew();
		} catch (error) {
			const others = error.fields?.length ? [] : [error.message];
			for (const { field, message } of error.fields || []) {
				const row = this.fields.get(field) || this.fields.get(field.replace(/\[\d+\]$/, ""));
				if (row) row.complain(message);
				else others.push(`${field}: ${message}`);
			}
			if (others.length) toast(others.join("; "), 15_000);
			const first = this.querySelector(".setting .error:not(:empty)");
			first?.closest("details").setAttribute("open", "");
			first?.scrollIntoView({ block: "center" });
		}
		this.save.disabled = false;
	}

	tell({ changed, restart, warnings }) {
		const told = (text, keys) => keys.length && `${t(text)} ${keys.join(", ")}.`;
		this.told = [told("In effect now:", changed.filter((key) => !restart.includes(key))),
			told("In effect after a restart:", changed.filter((key) => restart.includes(key))),
			...warnings.map(({ path, message }) => `${path}: ${said(message)}`),
		].filter(Boolean).join(" ") || t("Nothing has changed.");
	}

	choose() {
		const words = this.wanted.toLowerCase().split(/\s+/).filter(Boolean), narrow = words.length > 0 || this.mine;
		for (const section of this.sections) {
			const rows = [...section.querySelectorAll(".setting")];
			for (const row of rows) {
				const isUsual = row.dataset.origin === "default";
				row.hidden = !words.every((word) => row.words.includes(word)) || (this.mine && isUsual);
			}
			section.hidden = rows.every((row) => row.hidden);
			if (narrow) section.open = true;
		}
	}
}

const keyed = (name) =>
	(/^[A-Za-z_][\w-]*$/.test(name) ? `.${name}` : `["${name.replace(/["\\]/g, "\\$&")}"]`);

const textOf = (value) => (typeof value === "string" ? value : JSON.stringify(value));

function rangeOf({ minimum, above, maximum }) {
	const least = minimum ?? (above === null ? null : `> ${above}`);
	return (least ?? maximum) !== null && h("span", [least, maximum].join(" – "));
}

function inputOf({ type, items, choices, nullable, secret }, shown) {
	const isText = type === "string", isReference = typeof shown === "string" && /\$\{[^}]*\}/.test(shown);
	if (secret && JSON.stringify(shown ?? "").includes("***")) {
		return [{ disabled: true, value: t("stands in the file and is not shown") }];
	}
	if (!isReference && (type === "boolean" || choices.length)) {
		const states = { true: "on", false: "off", ...(nullable && { null: "not set" }) };
		const offered = choices.length ? choices.map((each) => [each, each])
			: Object.entries(states).map(([value, text]) => [value, t(text)]);
		return [{ choices: offered, value: String(shown ?? null) }, choices.length ? String : parsed];
	}
	if (type === "array") {
		const lines = (text) => text.split("\n").map((each) => each.trim()).filter(Boolean);
		return [{ value: [shown ?? []].flat().join("\n"), rows: 2, placeholder: t("one on each line") },
			(text) => (items === "string" ? lines(text) : lines(text).map((each) => parsed(each)))];
	}
	if (type === "object") {
		const value = shown && Object.keys(shown).length ? JSON.stringify(shown, null, 2) : "";
		return [{ value, rows: 2, placeholder: "{}" }, (text) => parsed(text || "{}")];
	}
	const placeholder = secret ? "${NAME}" : nullable ? t("not set") : "";
	return [{ value: shown ?? "", placeholder, inputMode: isText || isReference ? "text" : "decimal" }, (text) => {
		if (!text && (nullable || !isText)) return nullable ? null : DEFAULT;
		return isText ? text : parsed(text);
	}];
}
