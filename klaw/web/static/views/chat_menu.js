// What can be done with a chat as a whole.

import { app } from "/static/app.js";
import { get, post, remove } from "/static/api.js";
import { h, menu, moveTo, opened, showDialog, toast } from "/static/dom.js";
import { t } from "/static/i18n.js";
import { titleOf } from "/static/views/new_chat.js";

const at = (chat) => `/chats/${encodeURIComponent(chat.name)}`;

/** The menu of a chat (`name`, `title`, `archived`). `changed` is called after a change; `open`: the chat is shown. */
export function chatMenu(chat, changed, open = false) {
  const change = (word, body) => post(`${at(chat)}/${word}`, body).catch((error) => toast(error.message)).then(changed);
  const rename = () => {
    const title = h("input", { value: titleOf(chat), maxLength: 200, "aria-label": t("Title") });
    asked(title, () => change("rename", { title: title.value.trim() }));
  };
  return menu(`${t("Menu")}: ${titleOf(chat)}`, [
    ...(open ? [[t("Start fresh"), () => app.socket.send(chat.name, "/new")]] : []),
    [t("Rename"), rename],
    [t("Knowledge"), () => opened("knowledge/binding").then((view) => view.bind(chat, changed))],
    [t(chat.pinned ? "Unpin" : "Pin"), () => change("pin", { off: Boolean(chat.pinned) })],
    chat.archived ? [t("Restore"), () => change("restore")] : [t("Archive"), () => change("archive")],
    ...(chat.temporary ? [[t("Keep this chat"), () => change("keep")]] : [[t("Save as Markdown"), () => exported(chat, "markdown", "md")],
      [t("Save as JSON"), () => exported(chat, "json", "json")]]),
    [t("Delete"), () => opened("forgetting").then((view) => view.forgetting(null, () => gone(chat, changed), {
      title: `${t("Delete this chat")}: ${titleOf(chat)}`, deed: t("Delete"), ask: ({ dry_run, with_facts }) => remove(at(chat), { dry_run, with_facts }) }))],
  ]);
}

function gone(chat, changed) {
  for (const key of ["draft", "seen", "files"]) localStorage.removeItem(`klaw.${key}.${chat.name}`);
  app.socket.chats.delete(chat.name);
  if (location.hash.startsWith(`#${at(chat)}`)) moveTo("#/chats");
  changed();
}

/** Ask for one text in a dialog; `done` is called when it is to be saved. */
export function asked(field, done) {
  const dialog = h("dialog.ask", { "aria-label": field.getAttribute("aria-label"),
    onclose: () => dialog.returnValue === "yes" && field.value.trim() && done() },
  h("form", { method: "dialog" }, field, h("div.buttons",
    h("button.main", { value: "yes" }, t("Save")), h("button", { value: "no", formNoValidate: true }, t("Cancel")))));
  showDialog(dialog);
  field.select();
}

/** Download a chat; the server gives it in parts. */
async function exported(chat, format, ending) {
  toast(t("The chat is being read …"));
  const parts = [];
  try {
    for (let after = 0; after !== null;) {
      const part = await get(`${at(chat)}/export`, { format, after });
      parts.push(part.text);
      after = part.next;
    }
  } catch (error) {
    return toast(error.message);
  }
  const url = URL.createObjectURL(new Blob(parts, { type: format === "json" ? "application/json" : "text/markdown" }));
  h("a", { href: url, download: `${chat.name}.${ending}` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
}
