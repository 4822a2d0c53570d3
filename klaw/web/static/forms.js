// Forms and dialogs; and, for views that have them, all that page.js has.

import { h, iconButton, showDialog, t } from "./page.js";

export * from "./page.js";

let made = 0;

/**
 * A form. An error of the server stands beside the field that it names.
 *
 * `fields`: of each its `name`, `label` and `value`; `rows` makes it a long text, `choices` a list ([value, text]), a
 * `value` of true or false a box to tick; all else goes to the element. `send` gets the values by their names; with
 * `edits`, when something is there already, only those that were changed, and without a change its dialog is closed.
 */
export function form(fields, send, { button = t("Save"), more = [], edits = false } = {}) {
  const told = h("p.error", { role: "alert" });
  const inputs = new Map(fields.map((field) => [field.name, input(field)]));
  const values = () => [...inputs].map(([name, each]) => [name, each.value()]), before = Object.fromEntries(values());
  const save = h("button.main", button);
  const whole = h("form.fields", { noValidate: true }, [...inputs.values()].map((each) => each.row), told,
    h("div.buttons", more, save));
  whole.addEventListener("submit", async (event) => {
    event.preventDefault();
    const given = values().filter(([name, value]) => !edits || value !== before[name]);
    if (edits && !given.length) return whole.closest("dialog")?.close();
    inputs.forEach((each) => each.complain(""));
    told.textContent = "";
    save.disabled = true;
    try {
      await send(Object.fromEntries(given));
    } catch (error) {
      const wrong = (error.fields || []).filter(({ field }) => inputs.has(firstOf(field)));
      wrong.forEach(({ field, message }) => inputs.get(firstOf(field)).complain(message));
      if (wrong.length) inputs.get(firstOf(wrong[0].field)).element.focus();
      else told.textContent = error.message;
    }
    save.disabled = false;
  });
  return whole;
}

const firstOf = (field) => (field || "").split(/[.[]/)[0];

function input({ name, label, value = "", rows, choices, hint, ...how }) {
  made += 1;
  const id = `field-${made}`, problem = h("span.error", { id: `${id}-problem` });
  const given = { id, name, "aria-describedby": problem.id, ...how };
  const ticked = typeof value === "boolean";
  const element = choices
    ? h("select", given, choices.map(([key, text]) => h("option", { value: key, selected: key === value }, text)))
    : rows ? h("textarea", { ...given, rows, value }) : ticked ? h("input", { ...given, type: "checkbox", checked: value }) : h("input", { ...given, value });
  return {
    element,
    row: h("div", { class: ticked ? "tick" : "field" }, h("label", { htmlFor: id }, label), element,
      hint && h("span.hint", hint), problem),
    value: () => (ticked ? element.checked : element.type === "number" ? (element.value === "" ? "" : Number(element.value)) : element.value.trim()),
    complain: (text) => {
      problem.textContent = text;
      element.ariaInvalid = text ? "true" : null;
    },
  };
}

/** A dialog with a title and a place for what it shows. In place of content a function may load it, which gets the dialog;
 * when that fails, the dialog says why. */
export function openDialog(title, ...content) {
  const load = typeof content[0] === "function" && content.pop();
  const body = h("div.dialog-body", { tabIndex: -1 });
  const dialog = h("dialog.wide", { "aria-label": title },
    h("header", h("h1", title), iconButton("close", t("Close"), () => dialog.close())), body);
  const begin = () => {
    const first = body.querySelector("button, input:not([hidden]), textarea, select");
    (first && first.localName !== "button" && matchMedia("(pointer: fine)").matches ? first : body).focus(); // a phone's keyboard would hide the rest
  };
  showDialog(dialog);
  const made = {
    show: (...more) => { body.replaceChildren(...more.flat(Infinity).filter(Boolean)); begin(); },
    load(work, text = t("Loading …")) {
      made.show(h("p.hint", { role: "status" }, text));
      work(made).catch((error) => made.show(failure(error)));
    },
    close: () => dialog.close(),
  };
  if (load) made.load(load);
  else made.show(content);
  return made;
}

/** A form in a dialog, below what stands `above`. Once `send` is done the dialog is closed, and a function that it returns called. */
export const formDialog = (title, fields, send, { above = [], ...how } = {}) => openDialog(title, async (dialog) => dialog.show(above, form(await fields, async (given) => {
  const then = await send(given);
  dialog.close();
  then?.();
}, how)));

export const failure = (error) => h("p.error", { role: "alert" }, error.message);
