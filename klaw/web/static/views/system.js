import {
	Panel, button, dollars, failure, get, h, heading, later, mainButton, moveTo, number, post, said, section, size, t,
	table, term, when,
} from "../panel.js";

const WITHIN = ["Settings", "Access", "Backups", "Import", "MCP"];
const RUNNING = "running";

export default class extends Panel {
	every = 2000;
	tests = {}; // what trying a model found, by its name; the check-up has none

	async load() {
		const asked = ["/status", "/actors", "/models"].map((each) => get(each));
		const [status, { tree }, models] = await Promise.all(asked);
		// What changes with every look would make the page new each time.
		return { status: { ...status, uptime_s: null, metrics: null, threads: null }, tree, models, tests: this.tests };
	}

	draw({ status, tree, models }) {
		return [
			heading("System", WITHIN.map((name) => h("a", { href: `#/${name.toLowerCase()}` }, t(name)))),
			this.server(status), this.models(models), this.checkUp(),
			h("details.parts", h("summary", h("h2", t("Parts"))),
				table(["Part", "State", "Queue", "Handled", "Failed", "Restarts", "Does"], partsOf(tree))),
		];
	}

	server({ version, started_at: started, rss_bytes: memory, disk, connections, counts, llm: { today }, coverage,
		degraded, backup }) {
		const { error, uncovered, searchable, whole, messages } = coverage;
		const found = error ? t("The indexes cannot be read.") : !uncovered ? t("complete")
			: `${number(uncovered)} / ${number(searchable)} ${t("messages cannot be found")}`;
		const stored = [["messages: {count}", counts.messages], ["chats: {count}", counts.chats],
			["users: {count}", counts.users]].map(([text, count]) => t(text, { count }));
		return section("Status",
			degraded.length ? h("ul.degraded-list", degraded.map(({ text, code, since }) =>
				h("li.warn", said(text, code), " ", h("small", `${t("since")} ${when(since)}`)))) : h("p", t("All good")),
			h("dl",
				term("Server", `Klaw ${version}, ${t("up since")} ${when(started)}`),
				term("RAM", size(memory)), term("Free on disk", size(disk.free_bytes)),
				term("Last backup", backup.made_at && !backup.failed ? when(backup.made_at)
					: t(backup.failed ? "the last attempt failed" : "none yet")),
				term("Stored", stored.join(", ")),
				term("Search index", found, !whole && !error && ` (${t("checked so far", messages)})`),
				term("Spent today", `${dollars(today.cost_nano / 1e9)}, ${t("calls", today.calls)}`),
				term("Connections", number(connections)),
				term("Database", size(disk.database_bytes + disk.wal_bytes))));
	}

	models({ models, known, services, default: usual }) {
		const card = (name) => h("li",
			h("div.row", h("strong", name), name === usual && h("span.hint", t("default")),
				this.testButton("Test", name, () => post("/models/test", { model: name }))),
			facts(known.find((each) => each.name === name)),
			this.tested(name, "Testing …", ({ checks }) => h("dl.checks", checks.map((each) => [h("dt", said(each.name)),
				h(each.state === "fails" ? "dd.error" : "dd", `${t(each.state)}: ${said(each.text)}`)]))));
		return h("section",
			h("header.row", h("h2", t("Models")), mainButton("Connect a model", () => this.connect())),
			services.filter((each) => each.error || each.note)
				.map(({ provider, error, note }) => h("p.hint", `${provider}: ${said(error || note)}`)),
			h("ul.cards", models.map(card)));
	}

	/** `#/system/connect` leads here, too. */
	go(where) {
		if (where[0] !== "connect") return super.go(where);
		moveTo("#/system");
		this.connect();
	}

	connect() {
		later("connect", "connect", () => this.refresh());
	}

	testButton(text, name, ask) {
		const test = async () => {
			for (const told of [RUNNING, ask().catch((error) => ({ error }))]) {
				this.tests = { ...this.tests, [name]: await told };
				this.refresh();
			}
		};
		return button(text, test, { of: name, disabled: this.tests[name] === RUNNING });
	}

	tested(name, waiting, show) {
		const found = this.tests[name];
		return h("div", { role: "status" },
			found && (found === RUNNING ? t(waiting) : found.error ? failure(found.error) : show(found)));
	}

	checkUp() {
		const row = ({ level, name, text, todo }) => h("li",
			h(level === "ok" ? "strong" : "strong.error", `${said(level)} ${name}: `), said(text),
			todo && h("div.hint", `→ ${said(todo)}`));
		return section("Check-up", this.testButton("Check now", "", () => get("/doctor")),
			this.tested("", "Checking …", ({ ok, findings }) =>
				[ok && h("p", t("All good")), h("ul.findings", findings.map(row))]));
	}
}

function facts({ name, values, left_out: out }) {
	const fact = (name, told, source) => term(name, told, " ", h("small.hint", source));
	const rows = Object.values(values).map(({ title, value, said_by: source, at }) => {
		const told = typeof value === "number" ? t("{count} tokens", { count: value })
			: typeof value === "boolean" ? t(value ? "yes" : "no") : said(value);
		return fact(title, told, [t(source), at && when(at)].filter(Boolean).join(", "));
	});
	if (out.length) rows.push(fact("Left out", out.join(", "), t("the model refuses it")));
	return rows.length > 0 && h("details", { "data-key": name }, h("summary", t("What is known")), h("dl.checks", rows));
}

const partsOf = ({ children }, depth = 0) => children.flatMap((node) => [
	h("tr", h(`th.depth${Math.min(depth, 5)}`, { scope: "row" }, node.name), cellsOf(node).map((each = "") =>
		(typeof each === "number" ? h("td.number", number(each)) : h("td", each)))),
	...partsOf(node, depth + 1),
]);

function cellsOf({ kind, state, mailbox, restarts, activity, last_error: error, waiting, granted, busy, total, user }) {
	if (kind === "slots") return ["", number(waiting), granted, "", "", `${busy} / ${total}`];
	if (kind !== "actor") return ["", "", "", "", "", user || ""];
	const { depth, capacity, handled, failed } = mailbox || {};
	const does = [activity, error].filter(Boolean).join("; ");
	return [state, mailbox ? `${depth} / ${capacity}` : "", handled, failed, restarts, does];
}
