// What views that show how things are now share: asking again every so often.

import { confirmed, h, t, toast } from "./page.js";

/** A view that shows what `load` answers by `draw`, and asks again every `every` milliseconds. What has focus (by its
 * `data-key`) keeps it, what was unfolded stays so. */
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
    this.drawn = null;
    this.replaceChildren(h("p.hint", t("Loading …")));
    this.refresh();
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
      return this.replaceChildren(h("p.error", { role: "alert" }, error.message));
    }
    const text = JSON.stringify(data);
    if (asked !== this.asked || text === this.drawn) return;
    this.drawn = text;
    const focus = this.contains(document.activeElement) && document.activeElement.dataset.key;
    const open = new Set([...this.querySelectorAll("details[open]")].map((each) => each.dataset.key));
    this.replaceChildren(...[this.draw(data)].flat(Infinity).filter(Boolean));
    this.querySelectorAll("details").forEach((each) => { each.open ||= open.has(each.dataset.key); });
    if (focus) this.querySelector(`[data-key="${CSS.escape(focus)}"]`)?.focus();
  }

  /** Look again soon, also if nothing has changed. */
  again() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => { this.drawn = null; this.refresh(); }, 1500);
  }

  /** Do something and show what came of it; with a `question` only after a yes. */
  async change(work, question) {
    if (question && !await confirmed(question, t("Yes"), t("Cancel"))) return;
    try {
      await work();
    } catch (error) {
      toast(error.message);
    }
    await this.refresh();
  }
}

export const table = (head, rows, ...more) => h("table", { tabIndex: 0 },
  h("thead", h("tr", head.map((each) => (each ? h("th", { scope: "col" }, t(each)) : h("td"))))), h("tbody", rows), more);

export const term = (name, ...value) => [h("dt", t(name)), h("dd", value)];
