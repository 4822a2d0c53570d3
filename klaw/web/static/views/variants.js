// Variants of messages: editing them, having them answered again, going from one to another.

import { attempt, chatPath, h, iconButton, later, post, t } from "../page.js";

/** Change what a chat shows. Returns whether that was done. */
export const vary = (chat, word, body) => attempt(post(`${chatPath(chat)}/${word}`, body).then(() => true));

/** What can be done with a message: buttons in its row, and entries of its menu. */
export function variantButtons(row, chat, message) {
  const { seq, role, kind, task, variant } = message;
  if (kind !== "text" || task || role === "system") return [[], []];
  const go = (sign, label, number) => iconButton(sign, t(label), () => vary(chat, "variant", { seq, number }), { disabled: number < 1 || number > variant.count });
  return [[
    variant && h("span.variants", { role: "group", "aria-label": t("Variant {number} of {count}", variant) },
      go("back", "The variant before", variant.number - 1), ` ${variant.number}/${variant.count} `, go("next", "The next variant", variant.number + 1)),
    role === "user" && iconButton("edit", t("Edit"), ({ currentTarget }) => edit(row, chat, message, currentTarget)),
  ], role === "user" ? [] : [
    [t("Answer again"), () => vary(chat, "regenerate", { seq })],
    [t("Answer again with …"), () => later("models", "again", chat, seq)],
  ]];
}

function edit(row, chat, { seq, content }, button) {
  const leave = () => {
    form.remove();
    row.classList.remove("edited");
    button.focus();
  };
  const send = async (event) => {
    event.preventDefault();
    const text = field.value;
    if (!text.trim() || save.disabled) return;
    save.disabled = true;
    if (text === content || await vary(chat, "edit", { seq, text })) leave();
    save.disabled = false;
  };
  const field = h("textarea", { value: content, rows: Math.min(12, content.split("\n").length + 1), "aria-label": t("Edit"), onkeydown: (event) => {
    if (event.key === "Escape") leave();
    else if (event.key === "Enter" && !event.isComposing && !event.shiftKey && matchMedia("(pointer: fine)").matches) send(event);
  } });
  const save = h("button.main", t("Send")), form = h("form.editing", { onsubmit: send }, field, h("div.buttons", h("button", { type: "button", onclick: leave }, t("Cancel")), save));
  row.classList.add("edited");
  row.append(form);
  field.focus();
}
