// What views of lists and forms share: asking again now and then, forms whose errors stand at their fields.

import { Problem } from "/static/api.js";
import { confirmed, h, toast } from "/static/dom.js";
import { t, words } from "/static/i18n.js";

words({ "Loading …": "Загрузка …", "Yes": "Да", "More": "Ещё" });

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
    this.replaceChildren(h("p", { class: "hint" }, t("Loading …")));
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
      return this.replaceChildren(h("p", { class: "error", role: "alert" }, textOf(error)));
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

  /** Do something and show what came of it; with a `question` only after a yes. */
  async change(work, question) {
    if (question && !await confirmed(question, t("Yes"), t("Cancel"))) return;
    try {
      await work();
    } catch (error) {
      toast(textOf(error));
    }
    await this.refresh();
  }
}

export function textOf(error) {
  if (!(error instanceof Problem)) throw error;
  return error.status ? error.message : t("The server does not answer.");
}

/** A labelled field of a form; what is wrong with it stands below. */
export function field(label, input, hint) {
  input.id ||= `field-${input.name}`;
  const told = h("span", { class: "error", id: `${input.id}-error` });
  input.setAttribute("aria-describedby", hint ? `${told.id} ${input.id}-hint` : told.id);
  return h("div", { class: "field" }, h("label", { htmlFor: input.id }, label), input, told,
    hint && h("span", { class: "hint", id: `${input.id}-hint` }, hint));
}

/** Show at a form's fields what is wrong with them; what has no field stands in its `.problem`. */
export function showProblems(form, error, of = [...form.elements].map((each) => each.name)) {
  for (const input of form.elements) if (of.includes(input.name)) tell(input, "");
  const other = [];
  for (const { field: name, message } of error ? error.fields : []) {
    const input = form.elements.namedItem(name);
    if (input && !input.closest("[hidden]")) tell(input, message);
    else other.push(`${name}: ${message}`);
  }
  form.querySelector(".problem").textContent = other.join("; ") || (error && !error.fields.length ? textOf(error) : "");
}

function tell(input, message) {
  const told = document.getElementById(`${input.id}-error`);
  if (!told) return;
  told.textContent = message;
  input.toggleAttribute("aria-invalid", Boolean(message));
}

/** A dialog with a form; `save` is done when it is sent, and it stays open while something is wrong. */
export function formDialog(title, fields, save) {
  const button = h("button", { class: "main" }, t("Save"));
  const form = h("form", { noValidate: true }, h("h1", { id: "dialog-title" }, title), fields,
    h("p", { class: "error problem", role: "alert" }),
    h("div", { class: "buttons" }, h("button", { type: "button", onclick: () => dialog.close() }, t("Cancel")), button));
  const dialog = h("dialog", { class: "ask wide", "aria-labelledby": "dialog-title", onclose: () => dialog.remove() }, form);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    try {
      await save();
      dialog.close();
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      showProblems(form, error);
      form.querySelector("[aria-invalid]")?.focus();
    } finally {
      button.disabled = false;
    }
  });
  document.body.append(dialog);
  dialog.showModal();
  return form;
}
