// How the server is, for whoever runs it: what is degraded, models, a check-up, its parts with their queues.

import { dollars, get, h, later, moveTo, number, post, said, size, t, when } from "../page.js";
import { Panel, table, term } from "../panel.js";

const WITHIN = [["settings", "Settings"], ["access", "Access"], ["backups", "Backups"], ["import", "Import"]];

const RUNNING = "running";

class System extends Panel {
  every = 2000;
  tests = {}; // what trying a model found, by its name; the check-up has none

  async load() {
    const [status, actors, models] = await Promise.all(["/status", "/actors", "/models"].map((each) => get(each)));
    const { tree } = actors;
    // What changes with every look, though nothing happened, would make the page new each time.
    return { status: { ...status, uptime_s: null, metrics: null, threads: null }, rows: rowsOf(tree), models, tests: this.tests };
  }

  draw({ status, rows, models }) {
    return [
      h("header.row", h("h1", t("System")), WITHIN.map(([path, name]) => h("a", { href: `#/${path}`, "data-key": path }, t(name)))),
      this.server(status), this.models(models), this.checkUp(),
      h("details", { "data-key": "parts" }, h("summary", h("h2", t("Parts"))), table(["Part", "State", "Queue", "Handled", "Failed", "Restarts", "Does"], rows.map(({ depth, cells }) => {
        const [name, state, ...others] = cells;
        return h("tr", h("th", { scope: "row", class: `depth${Math.min(depth, 5)}` }, name), h("td", state),
          others.map((each) => h("td", { class: typeof each === "number" ? "number" : "" }, typeof each === "number" ? number(each) : each)));
      }))),
    ];
  }

  server({ version, started_at: started, rss_bytes: memory, disk, connections, counts, llm, coverage, degraded, backup }) {
    const found = coverage.error ? t("The indexes cannot be read.")
      : coverage.uncovered ? `${number(coverage.uncovered)} / ${number(coverage.searchable)} ${t("messages cannot be found")}` : t("complete");
    return h("section", h("h2", t("Status")),
      degraded.length ? h("ul.degraded-list", degraded.map((each) => h("li.warn", said(each.text, each.code), " ", h("small", `${t("since")} ${when(each.since)}`)))) : h("p", t("All good")), h("dl",
      term("Server", `Klaw ${version}, ${t("up since")} ${when(started)}`),
      term("RAM", size(memory)), term("Free on disk", size(disk.free_bytes)),
      term("Last backup", backup.failed ? t("the last attempt failed") : backup.made_at ? when(backup.made_at) : t("none yet")),
      term("Stored", ["messages: {count}", "chats: {count}", "users: {count}"].map((text, place) => t(text, { count: number([counts.messages, counts.chats, counts.users][place]) })).join(", ")),
      term("Search index", found + (coverage.whole || coverage.error ? "" : ` (${t("checked so far")}: ${number(coverage.messages)})`)),
      term("Spent today", `${dollars(llm.today.cost_nano / 1e9)}, ${t("calls")}: ${number(llm.today.calls)}`),
      term("Connections", number(connections)),
      term("Database", size(disk.database_bytes + disk.wal_bytes))));
  }

  models({ models, known, services, default: usual }) {
    const notes = services.filter((each) => each.error || each.note);
    return h("section", h("header.row", h("h2", t("Models")),
      h("button.main", { "data-key": "connect", onclick: () => this.connect() }, t("Connect a model"))),
    notes.map((each) => h("p.hint", `${each.provider}: ${said(each.error || each.note)}`)), h("ul.cards", models.map((name) => {
      return h("li", h("div.row", h("strong", name), name === usual && h("span.hint", t("default")),
        h("button", { "data-key": `test ${name}`, "aria-label": `${t("Test")}: ${name}`, disabled: this.tests[name] === RUNNING, onclick: () => this.test(name, () => post("/models/test", { model: name })) }, t("Test"))), facts(known.find((each) => each.name === name)),
      this.tested(name, t("Testing …"), ({ checks }) => h("dl.checks", checks.map((each) => [h("dt", said(each.name)),
        h("dd", { class: each.state === "fails" ? "error" : "" }, `${t(each.state)}: ${said(each.text)}`)]))));
    })));
  }

  /** `#/system/connect` leads here, too; once it is open, the address is that of what is under it. */
  go(where) {
    if (where[0] !== "connect") return super.go(where);
    moveTo("#/system");
    this.connect();
  }

  connect() {
    later("connect", "connect", () => this.refresh());
  }

  /** Try something, and show that it runs and what it found: under the name of a model, or as the check-up. */
  async test(name, asked) {
    for (const told of [RUNNING, asked().catch((error) => ({ error: error.message }))]) {
      this.tests = { ...this.tests, [name]: await told };
      this.refresh();
    }
  }

  checkUp() {
    return h("section", h("h2", t("Check-up")),
      h("button", { "data-key": "check", disabled: this.tests[""] === RUNNING, onclick: () => this.test("", () => get("/doctor")) }, t("Check now")),
      this.tested("", t("Checking …"), ({ ok, findings }) => [ok && h("p", t("All good")), h("ul.findings", findings.map((each) => h("li", h("strong", { class: each.level === "ok" ? "" : "error" }, `${said(each.level)} ${each.name}: `), said(each.text),
        each.todo && h("div.hint", `→ ${said(each.todo)}`))))]));
  }

  tested(name, waiting, show) {
    const found = this.tests[name];
    return h("div", { role: "status" }, found && (found === RUNNING ? waiting : found.error ? h("p.error", found.error) : show(found)));
  }
}

const FACTS = [["context_tokens", "Context"], ["longest_context", "Longest context"], ["output_tokens", "Longest answer"], ["tools", "tools"], ["images", "images"],
  ["thinking", "thinking"], ["json_schema", "JSON schema"], ["embedding", "embeddings"], ["prices", "Prices"]];
const SOURCES = { config: "set in the configuration", service: "the service says so", prices: "from the price list", tried: "tried", default: "assumed" };

/** What is known of a model, and who says so. */
function facts({ name, values, left_out: out }) {
  const rows = FACTS.filter(([field]) => field in values).map(([field, title]) => {
    const { value, source, at } = values[field];
    const told = typeof value === "number" ? t("{count} tokens", { count: number(value) }) : typeof value === "boolean" ? t(value ? "yes" : "no") : said(value);
    return term(title, told, " ", h("small.hint", `${t(SOURCES[source])}${at ? `, ${when(at)}` : ""}`));
  });
  if (out.length) rows.push(term("Left out", out.join(", "), " ", h("small.hint", t("the model refuses it"))));
  return rows.length > 0 && h("details", { "data-key": `facts ${name}` }, h("summary", t("What is known")), h("dl.checks", rows));
}

/** The tree of parts as rows, each with how deep it stands. */
function rowsOf(tree, depth = 0) {
  return tree.children.flatMap((node) => [{ depth, cells: cellsOf(node) }, ...rowsOf(node, depth + 1)]);
}

function cellsOf(node) {
  if (node.kind === "actor") {
    const box = node.mailbox;
    const queue = box ? [`${box.depth} / ${box.capacity}`, box.handled, box.failed] : ["", "", ""];
    return [node.name, node.state, ...queue, node.restarts, [node.activity, node.last_error].filter(Boolean).join("; ")];
  }
  if (node.kind === "slots") return [node.name, "", number(node.waiting), node.granted, "", "", `${node.busy} / ${node.total}`];
  return [node.name, "", "", "", "", "", node.user || ""];
}

customElements.define("klaw-system", System);
