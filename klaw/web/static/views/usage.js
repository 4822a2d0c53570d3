import { Panel, date, dollars, get, h, heading, number, section, select, t, table } from "../panel.js";

const MEASURES = {
	tokens: { name: "Tokens", of: (each) => each.prompt_tokens + each.completion_tokens, text: number },
	cost: { name: "Cost", of: (each) => each.cost_usd, text: dollars },
};

const percent = (value, of) => `${of ? (100 * value) / of : 0}%`;

export default class extends Panel {
	every = 30_000;
	days = 30;
	measure = null;

	async load() {
		const asked = ["day", "model", "source"].map((by) => get("/usage", { by, days: this.days }));
		return { all: await Promise.all(asked), measure: this.measure };
	}

	draw({ all: [day, model, source] }) {
		const shown = this.measure || (day.total.cost_nano ? "cost" : "tokens"), measure = MEASURES[shown], { total } = day;
		const choose = (name, label, choices, chosen) => h("label", t(label), " ",
			select(choices, chosen, { name, "data-key": name, onchange: ({ target }) => {
				this[name] = target.value;
				this.refresh();
			} }));
		const sums = (title, groups) => sumsOf(title, groups, total, measure);
		return [
			heading("Usage",
				choose("days", "Days", ["7", "30", "90", "365"].map((each) => [each, each]), String(this.days)),
				choose("measure", "Show", Object.entries(MEASURES).map(([key, { name }]) => [key, t(name)]), shown)),
			this.limits(day.budget),
			total.calls ? [
				section("By day", daysChart(day, measure),
					h("details", h("summary", t("As a table")), sums("Day", day.groups))),
				section("By model", sums("Model", model.groups)),
				section("By source", sums("Source", source.groups)),
				total.unpriced_calls > 0 && h("p.hint", t("Calls of unknown price", total.unpriced_calls)),
				total.estimated_calls > 0 && h("p.hint", t("Estimated calls", total.estimated_calls)),
			] : h("p.none", t("No model was asked yet. Ask something in a chat; what it takes stands here.")),
		];
	}

	limits(budget) {
		const { spent_nano: spent, limit_nano: limit, unpriced_tokens: used, limit_tokens: most } = budget || {};
		const row = (share, text) => h("p.limit", h("meter", { min: 0, max: 1, high: budget.warn_share, optimum: 0,
			value: Math.min(1, share), ariaLabel: text }), " ", text);
		const rows = budget ? [
			limit !== null && row(spent / limit, `${dollars(spent / 1e9)} ${t("of")} ${dollars(limit / 1e9)}`),
			most !== null
				&& row(used / most, `${number(used)} ${t("of")} ${number(most)} ${t("tokens of unknown price")}`),
		].filter(Boolean) : [];
		return section("Limits of today, of all users together",
			rows.length ? rows : h("p.hint", t("No limits are set.")),
			budget?.refused > 0 && h("p.warn", t("Refused requests", budget.refused)));
	}
}

function daysChart({ since, days, groups }, { name, of, text }) {
	const known = new Map(groups.map((each) => [each.key, of(each)])), highest = Math.max(...known.values(), 0);
	const dates = Array.from({ length: days }, (_, place) =>
		new Date(Date.parse(since) + place * 864e5).toISOString().slice(0, 10));
	const bars = dates.map((key) => {
		const value = known.get(key) || 0;
		return h("span", { title: `${dayText(key)}: ${text(value)}`, style: `height: ${percent(value, highest)}` });
	});
	const first = dayText(dates[0]), last = dayText(dates.at(-1)), most = `${t("max.")} ${text(highest)}`;
	return h("figure", h("div.chart", { role: "img", ariaLabel: `${t(name)}, ${first} – ${last}, ${most}` }, bars),
		h("figcaption.hint", { ariaHidden: "true" }, [first, most, last].map((each) => h("span", each))));
}

const dayText = (day) => date(day, { day: "numeric", month: "short", timeZone: "UTC" });

function sumsOf(name, groups, total, { of }) {
	const highest = Math.max(...groups.map(of), 0);
	const row = (key, each, bar) => {
		const { calls, unpriced_calls: unpriced, prompt_tokens: asked, completion_tokens: answered } = each;
		const cost = unpriced >= calls ? "–" : dollars(each.cost_usd) + (unpriced ? " + ?" : "");
		return h("tr", h("th", { scope: "row" }, key),
			[number(calls), number(asked), number(answered), cost].map((value) => h("td.number", value)),
			h("td", { ariaHidden: "true" }, bar));
	};
	const nameOf = ({ key, title }) => (name === "Day" ? dayText(key) : title ? t(title) : key || "–");
	const share = (each) => h("div.share", h("span", { style: `width: ${percent(of(each), highest)}` }));
	return table([name, "Calls", "Tokens in", "Tokens out", "Cost", ""],
		groups.map((each) => row(nameOf(each), each, share(each))),
		h("tfoot", row(t("Total"), total)));
}
