import { attempt, button, chatPath, fit, h, iconButton, isEnter, isFine, later, mainButton, post, t } from "../page.js";

/** Returns whether it was done. */
export const vary = (chat, word, body) => attempt(post(`${chatPath(chat)}/${word}`, body).then(() => true));

export function variantButtons(row, chat, message) {
	const { seq, role, kind, task, variant } = message;
	if (kind !== "text" || task || role === "system") return [[], []];
	const go = (sign, label, number) => iconButton(sign, label, () => vary(chat, "variant", { seq, number }),
		{ disabled: number < 1 || number > variant.count });
	return [[
		variant && h("span.variants", { role: "group", ariaLabel: t("Variant {number} of {count}", variant) },
			go("back", "The variant before", variant.number - 1), ` ${variant.number}/${variant.count} `,
			go("next", "The next variant", variant.number + 1)),
		role === "user" && iconButton("edit", "Edit", ({ currentTarget }) => edit(row, chat, message, currentTarget)),
	], role === "user" ? [] : [
		["Answer again", () => vary(chat, "regenerate", { seq })],
		["Answer again with …", () => later("models", "again", chat, seq)],
	]];
}

function edit(row, chat, { seq, content }, opener) {
	const leave = () => {
		form.remove();
		row.classList.remove("edited");
		opener.focus();
	};
	const send = async (event) => {
		event.preventDefault();
		const text = field.value;
		if (!text.trim() || save.disabled) return;
		save.disabled = true;
		if (text === content || await vary(chat, "edit", { seq, text })) leave();
		save.disabled = false;
	};
	const onkeydown = (event) => {
		if (event.key === "Escape") leave();
		else if (isEnter(event) && !event.shiftKey && isFine()) send(event);
	};
	const field = h("textarea", { value: content, ariaLabel: t("Edit"), onkeydown, oninput: () => fit(field) });
	const save = mainButton("Send", null, { type: "submit" });
	const form = h("form.editing", { onsubmit: send }, field, h("div.buttons", button("Cancel", leave), save));
	row.classList.add("edited");
	row.append(form);
	fit(field);
	field.focus();
}
