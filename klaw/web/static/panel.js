import { attempt, confirmed, failure, h, shown, t } from "./forms.js";

export * from "./forms.js";

const keyOf = (element) =>
	element.dataset.key || element.ariaLabel || (element.querySelector("summary") || element).textContent;

/** Shows what `load` answers by `draw`, and asks again every `every` ms. What has focus or is unfolded stays so. */
export class Panel extends HTMLElement {
	where = [];
	every = 0;

	connectedCallback() {
		this.classList.add("panel");
		this.go(this.where);
		if (this.every) this.timer = setInterval(() => document.hidden || this.refresh(), this.every);
	}

	disconnectedCallback() {
		clearInterval(this.timer);
		this.asked = null;
	}

	go(where) {
		this.where = where;
		this.replaceChildren(h("p.hint", t("Loading …")));
		this.renew();
	}

	renew() {
		this.drawn = null;
		return this.refresh();
	}

	async refresh() {
		const asked = this.asked = {};
		let data;
		try {
			data = await this.load();
		} catch (error) {
			if (asked !== this.asked) return;
			if (error.status === 401) return location.reload();
			this.drawn = null;
			return this.replaceChildren(failure(error));
		}
		const text = JSON.stringify(data);
		if (asked !== this.asked || text === this.drawn) return;
		this.drawn = text;
		const all = (names) => [...this.querySelectorAll(names)];
		const focus = this.contains(document.activeElement) && keyOf(document.activeElement);
		const open = all("details[open]").map(keyOf);
		this.replaceChildren(...shown([this.draw(data)]));
		all("details").forEach((each) => { each.open ||= open.includes(keyOf(each)); });
		if (focus) all("a, button, input, select, summary").find((each) => keyOf(each) === focus)?.focus();
	}

	/** With a `question` only after a yes. */
	async change(work, question) {
		if (question && !await confirmed(question, "Yes")) return;
		await attempt(work());
		await this.refresh();
	}
}

export const heading = (title, ...more) => h("header.row", h("h1", t(title)), more);

export const section = (title, ...content) => h("section", { ariaLabel: t(title) }, h("h2", t(title)), content);

export const list = (kind, rows, none) => (rows.length ? h(`ul.${kind}`, rows) : none && h("p.none", t(none)));

export const row = (title, about, ...actions) =>
	h("li.row", h("span", h("strong", title), h("div.hint", about)), actions);

export const table = (head, rows, ...more) => h("table", { tabIndex: 0 },
	h("thead", h("tr", head.map((each) => (each ? h("th", { scope: "col" }, t(each)) : h("td"))))),
	h("tbody", rows), more);

export const term = (name, ...value) => [h("dt", t(name)), h("dd", value)];
