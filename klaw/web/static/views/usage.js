// What calls to models used and cost: by day, model and source, and how far the daily limits are used.

import { date, dollars, get, h, number, svg, t } from "../page.js";
import { Panel, table } from "../panel.js";

const SOURCES = {
  turn: "answers in chats", run: "runs of tasks", summary: "summaries", titles: "titles", topics: "making topics", facts: "learning facts",
  reranker: "choosing what is recalled", embedding: "vectors of messages and questions",
};
const DAY_MS = 86_400_000;

const MEASURES = {
  tokens: { name: "Tokens", of: (each) => each.prompt_tokens + each.completion_tokens, text: number },
  cost: { name: "Cost", of: (each) => each.cost_usd, text: dollars },
};

const chart = (name, width, height, ...parts) => svg("svg", { class: name, viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none" }, ...parts);

class Usage extends Panel {
  every = 30_000;
  days = 30;
  measure = null;

  async load() {
    const [day, model, source] = await Promise.all(["day", "model", "source"].map((by) => get("/usage", { by, days: this.days })));
    return { day, model, source, measure: this.measure };
  }

  draw({ day, model, source }) {
    const measure = MEASURES[this.measure || (day.total.cost_nano ? "cost" : "tokens")];
    const choose = (key, label, options, chosen, set) => h("label", t(label), " ",
      h("select", { "data-key": key, onchange: (event) => { set(event.target.value); this.refresh(); } },
        options.map(([value, text]) => h("option", { value, selected: value === chosen }, text))));
    return [
      h("header.row", h("h1", t("Usage")),
        choose("days", "Days", [7, 30, 90, 365].map((each) => [each, number(each)]), this.days, (value) => { this.days = Number(value); }),
        choose("measure", "Show", Object.entries(MEASURES).map(([key, each]) => [key, t(each.name)]), Object.keys(MEASURES).find((key) => MEASURES[key] === measure), (value) => { this.measure = value; })),
      this.limits(day.budget),
      day.total.calls ? [
        h("section", h("h2", t("By day")), this.daysChart(day, measure),
          h("details", { "data-key": "days table" }, h("summary", t("As a table")), sums("Day", day.groups, day.total, measure, dayText))),
        h("section", h("h2", t("By model")), sums("Model", model.groups, model.total, measure)),
        h("section", h("h2", t("By source")), sums("Source", source.groups, source.total, measure, (key) => t(SOURCES[key] || key))),
        day.total.unpriced_calls > 0 && h("p.hint", `${t("Calls of unknown price")}: ${number(day.total.unpriced_calls)}`),
        day.total.estimated_calls > 0 && h("p.hint", `${t("Estimated calls")}: ${number(day.total.estimated_calls)}`),
      ] : h("p.none", t("No model was asked yet. Ask something in a chat; what it takes stands here.")),
    ];
  }

  limits(budget) {
    const rows = !budget ? [] : [
      budget.limit_nano !== null && [budget.spent_nano / budget.limit_nano, `${dollars(budget.spent_nano / 1e9)} ${t("of")} ${dollars(budget.limit_nano / 1e9)}`],
      budget.limit_tokens !== null && [budget.unpriced_tokens / budget.limit_tokens,
        `${number(budget.unpriced_tokens)} ${t("of")} ${number(budget.limit_tokens)} ${t("tokens of unknown price")}`],
    ].filter(Boolean);
    return h("section", h("h2", t("Limits of today, of all users together")),
      rows.length ? rows.map(([share, text]) => h("p.limit",
        h("meter", { min: 0, max: 1, high: budget.warn_share, optimum: 0, value: Math.min(1, share), "aria-label": text }), " ", text))
        : h("p.hint", t("No limits are set.")),
      budget && budget.refused > 0 && h("p.warn", `${t("Refused requests")}: ${number(budget.refused)}`));
  }

  daysChart({ since, days, groups }, measure) {
    const known = new Map(groups.map((each) => [each.key, measure.of(each)]));
    const dates = Array.from({ length: days }, (_, place) => new Date(Date.parse(since) + place * DAY_MS).toISOString().slice(0, 10));
    const highest = Math.max(...known.values(), 0);
    const bars = dates.map((key, place) => {
      const value = known.get(key) || 0, height = highest ? (96 * value) / highest : 0;
      return svg("rect", { x: place * 10 + 1, y: 100 - height, width: 8, height }, svg("title", {}, `${dayText(key)}: ${measure.text(value)}`));
    });
    const first = dayText(dates[0]), last = dayText(dates.at(-1)), most = `${t("max.")} ${measure.text(highest)}`, drawn = chart("chart", days * 10, 100, ...bars);
    drawn.setAttribute("role", "img");
    drawn.setAttribute("aria-label", `${t(measure.name)}, ${first} – ${last}, ${most}`);
    return h("figure", drawn, h("figcaption.hint", { "aria-hidden": "true" }, [first, most, last].map((each) => h("span", each))));
  }
}

const dayText = (day) => date(day, { day: "numeric", month: "short", timeZone: "UTC" });

function sums(name, groups, total, measure, shown = (key) => key) {
  const highest = Math.max(...groups.map(measure.of), 0);
  const row = (key, each, bar) => h("tr", h("th", { scope: "row" }, key),
    [number(each.calls), number(each.prompt_tokens), number(each.completion_tokens),
      each.unpriced_calls >= each.calls ? "–" : dollars(each.cost_usd) + (each.unpriced_calls ? " + ?" : "")].map((value) => h("td.number", value)),
    h("td", { "aria-hidden": "true" }, bar));
  return table([name, "Calls", "Tokens in", "Tokens out", "Cost", ""], groups.map((each) => row(shown(each.key || "–"), each,
    chart("share", 100, 10, svg("rect", { width: highest ? (100 * measure.of(each)) / highest : 0, height: 10 })))),
  h("tfoot", row(t("Total"), total)));
}

customElements.define("klaw-usage", Usage);
