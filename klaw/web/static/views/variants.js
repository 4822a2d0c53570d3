// Variants of messages: saying something else, having a message answered again, going from one variant to another.

import { post } from "/static/api.js";
import { h, opened, toast } from "/static/dom.js";
import { t } from "/static/i18n.js";

/** Change what a chat shows; all who watch it are told. Returns whether that was done. */
export const vary = (chat, word, body) => post(`/chats/${encodeURIComponent(chat)}/${word}`, body).then(() => true, (error) => toast(error.message));

/** What can be done with a stored message in its row. */
export function variantButtons(row, chat, message) {
  const { seq, role, kind, task, variant } = message;
  if (kind !== "text" || task || role === "system") return "";
  const button = (text, onclick, more) => h("button", { class: "quiet", type: "button", onclick, ...more }, text);
  const go = (sign, label, number) => button(sign, () => vary(chat, "variant", { seq, number }), { "aria-label": t(label), title: t(label), disabled: number < 1 || number > variant.count });
  return [
    variant && h("span", { class: "variants", role: "group", "aria-label": t("Variant {number} of {count}", variant) },
      go("‹", "The variant before", variant.number - 1), ` ${variant.number}/${variant.count} `, go("›", "The next variant", variant.number + 1)),
    role === "user" ? button(t("Edit"), (event) => edit(row, chat, message, event.target), { class: "quiet edit" })
      : [button(t("Answer again"), () => vary(chat, "regenerate", { seq })),
        button(t("Answer again with …"), () => opened("models").then((view) => view.again(chat, seq)))],
  ];
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
    if (!text.trim()) return;
    save.disabled = true;
    if (text === content || await vary(chat, "edit", { seq, text })) leave();
    save.disabled = false;
  };
  const field = h("textarea", { value: content, rows: Math.min(12, content.split("\n").length + 1), "aria-label": t("Edit"), onkeydown: (event) => {
    if (event.key === "Escape") leave();
    else if (event.key === "Enter" && !event.isComposing && (event.ctrlKey || event.metaKey || (!event.shiftKey && matchMedia("(pointer: fine)").matches))) send(event);
  } });
  const save = h("button", { class: "main" }, t("Send"));
  const form = h("form", { class: "editing", onsubmit: send }, field, h("div", { class: "buttons" }, h("button", { type: "button", onclick: leave }, t("Cancel")), save));
  row.classList.add("edited");
  row.append(form);
  field.focus();
}
