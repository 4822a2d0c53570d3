// What can be done with a chat as a whole.

import { app, attempt, chatPath, confirmed, get, h, later, menu, moveTo, post, remove, t, toast } from "../page.js";
import { titleOf } from "./new_chat.js";

const at = (chat) => chatPath(chat.name);

/** The menu of a chat (`name`, `title`, `archived`). `changed` is called after a change; `open`: the chat is shown. */
export function chatMenu(chat, changed, open = false) {
  const change = (word, body) => attempt(post(`${at(chat)}/${word}`, body)).then(changed);
  const rename = () => {
    const title = h("input", { value: titleOf(chat), maxLength: 200 });
    confirmed(h("label.field", t("Title"), title), t("Save"), t("Cancel")).then((yes) => yes && title.value.trim() && change("rename", { title: title.value.trim() }));
    title.select();
  };
  return menu(`${t("Menu")}: ${titleOf(chat)}`, [
    ...(open ? [[t("Start fresh"), () => app.socket.send(chat.name, "/new")]] : []),
    [t("Rename"), rename],
    [t("Knowledge"), () => later("knowledge/binding", "bind", chat, changed)],
    [t(chat.pinned ? "Unpin" : "Pin"), () => change("pin", { off: Boolean(chat.pinned) })],
    chat.archived ? [t("Restore"), () => change("restore")] : [t("Archive"), () => change("archive")],
    ...(chat.temporary ? [[t("Keep this chat"), () => change("keep")]] : [[t("Save as Markdown"), () => attempt(exported(chat, "markdown", "md"))],
      [t("Save as JSON"), () => attempt(exported(chat, "json", "json"))]]),
    [t("Delete"), () => later("forgetting", "forgetting", null, () => gone(chat, changed), {
      title: `${t("Delete this chat")}: ${titleOf(chat)}`, deed: t("Delete"), ask: ({ dry_run, with_facts }) => remove(at(chat), { dry_run, with_facts }) })],
  ]);
}

function gone(chat, changed) {
  for (const key of ["draft", "seen", "files"]) localStorage.removeItem(`klaw.${key}.${chat.name}`);
  app.socket.chats.delete(chat.name);
  if (location.hash.startsWith(`#${at(chat)}`)) moveTo("#/chats");
  changed();
}

/** Download a chat; the server gives it in parts. */
async function exported(chat, format, ending) {
  toast(t("The chat is being read …"));
  const parts = [];
  for (let after = 0; after !== null;) {
    const part = await get(`${at(chat)}/export`, { format, after });
    parts.push(part.text);
    after = part.next;
  }
  const url = URL.createObjectURL(new Blob(parts, { type: format === "json" ? "application/json" : "text/markdown" }));
  h("a", { href: url, download: `${chat.name}.${ending}` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
}
