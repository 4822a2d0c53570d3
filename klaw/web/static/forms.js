import { failure, h, iconButton, isFine, mainButton, select, showDialog, shown, status, t } from "./page.js";

export * from "./page.js";

let made = 0;

/** `send` gets the values of the fields (see `input`) by their names; with `edits` only what was changed, and without a
 * change the dialog is closed. An error of the server stands beside the field that it names. */
export function form(fields, send, { deed = "Save", more = [], edits = false } = {}) {
	const problem = failure(), inputs = new Map(fields.map((field) => [field.name, input(field)]));
	const values = () => [...inputs].map(([name, each]) => [name, each.value()]), before = Object.fromEntries(values());
	const save = mainButton(deed, null, { type: "submit" });
	const whole = h("form.fields", { noValidate: true, onsubmit: async (event) => {
		event.preventDefault();
		const given = values().filter(([name, value]) => !edits || value !== before[name]);
		if (edits && !given.length) return whole.closest("dialog")?.close();
		inputs.forEach((each) => each.complain(""));
		problem.textContent = "";
		save.disabled = true;
		try {
			await send(Object.fromEntries(given));
		} catch (error) {
			const of = ({ field }) => inputs.get((field || "").split(/[.[]/)[0]);
			const wrong = (error.fields || []).filter(of);
			wrong.forEach((each) => of(each).complain(each.message));
			if (wrong.length) of(wrong[0]).element.focus();
			else problem.textContent = error.message;
		}
		save.disabled = false;
	} }, [...inputs.values()].map((each) => each.row), problem, h("div.buttons", more, save));
	return whole;
}

/** A field; `rows` makes it a long text, `choices` ([value, text]) a list, a `value` of true or false a box to tick.
 * All else goes to the element. */
export function input({ name, label, value = "", rows, choices, hint, ...how }) {
	const id = `field-${made += 1}`, ticked = typeof value === "boolean";
	const problem = h("span.error", { id: `${id}-problem` }), about = hint && h("span.hint", { id: `${id}-hint` }, hint);
	const described = [problem, about].filter(Boolean).map((each) => each.id).join(" ");
	const given = { id, name, "aria-describedby": described, ...how };
	const element = choices ? select(choices, value, given) : rows ? h("textarea", { ...given, rows, value })
		: h("input", ticked ? { ...given, type: "checkbox", checked: value } : { ...given, value });
	return {
		element,
		row: h(ticked ? "div.tick" : "div.field", h("label", { htmlFor: id }, label), element, about, problem),
		value() {
			if (ticked) return element.checked;
			return element.type === "number" && element.value ? Number(element.value) : element.value.trim();
		},
		complain(text) {
			problem.textContent = text;
			element.ariaInvalid = text ? "true" : null;
		},
	};
}

/** In place of content a function may load it, which gets the dialog. */
export function openDialog(title, ...content) {
	const body = h("div.dialog-body", { tabIndex: -1 }), close = () => dialog.close();
	const dialog = h("dialog.wide", { ariaLabel: title },
		h("header", h("h1", title), iconButton("close", "Close", close)), body);
	const made = {
		close,
		show(...more) {
			body.replaceChildren(...shown(more));
			const first = body.querySelector("button, input:not([hidden]), textarea, select");
			// A phone's keyboard would hide the rest.
			(first && first.localName !== "button" && isFine() ? first : body).focus();
		},
		load(work, text = "Loading …") {
			made.show(status(t(text)));
			work(made).catch((error) => made.show(failure(error)));
		},
	};
	showDialog(dialog);
	if (typeof content[0] === "function") made.load(content[0]);
	else made.show(content);
	return made;
}

/** Once `send` is done the dialog is closed, and a function that it returned called. `fields` may be a promise. */
export const formDialog = (title, fields, send, { above, ...how } = {}) => openDialog(t(title), async (dialog) =>
	dialog.show(above, form(await fields, async (given) => {
		const then = await send(given);
		dialog.close();
		then?.();
	}, how)));

export const dropped = (take) => ({ ondragover: (event) => event.preventDefault(), ondrop: (event) => {
	event.preventDefault();
	take([...event.dataTransfer.files]);
} });

export function picked(text, take, { multiple, disabled } = {}) {
	const picker = h("input", { type: "file", hidden: true, multiple, onchange: () => {
		take([...picker.files]);
		picker.value = "";
	} });
	return [mainButton(text, () => picker.click(), { disabled }), picker];
}
