import { app, attempt, chatPath, confirmed, get, h, later, menu, moveTo, post, remove, t, toast } from "../page.js";
import { titleOf } from "./new_chat.js";

const at = (chat) => chatPath(chat.name);

export function chatMenu(chat, changed, open = false) {
  const { name, pinned, archived, temporary } = chat, title = titleOf(chat);
  const change = (word, body) => attempt(post(`${at(chat)}/${word}`, body)).then(changed);
  const rename = async () => {
    const field = h("input", { value: title, maxLength: 200 });
    const asked = confirmed(h("label.field", t("Title"), field), "Save");
    field.select();
    if (await asked && field.value.trim()) change("rename", { title: field.value.trim() });
  };
  const forget = () => later("forgetting", "forgetting", null, () => gone(chat, changed), {
    title: t("Delete this chat", title), deed: "Delete",
    ask: ({ dry_run, with_facts }) => remove(at(chat), { dry_run, with_facts }),
  });
  return menu(t("Menu", title), [
    open && ["Start fresh", () => app.socket.send(name, "/new")],
    ["Rename", rename],
    ["Knowledge", () => later("knowledge/binding", "bind", chat, changed)],
    [pinned ? "Unpin" : "Pin", () => change("pin", { off: Boolean(pinned) })],
    archived ? ["Restore", () => change("restore")] : ["Archive", () => change("archive")],
    temporary && ["Keep this chat", () => change("keep")],
    !temporary && ["Save as Markdown", () => attempt(exported(chat, "markdown", "md"))],
    !temporary && ["Save as JSON", () => attempt(exported(chat, "json", "json"))],
    ["Delete", forget],
  ]);
}

function gone(chat, changed) {
  for (const key of ["draft", "seen", "files"]) localStorage.removeItem(`klaw.${key}.${chat.name}`);
  app.socket.chats.delete(chat.name);
  if (location.hash.startsWith(`#${at(chat)}`)) moveTo("#/chats");
  changed();
}

async function exported(chat, format, ending) {
  toast(t("The chat is being read …"));
  const parts = [];
  for (let after = 0; after !== null;) {
    const { text, next } = await get(`${at(chat)}/export`, { format, after });
    parts.push(text);
    after = next;
  }
  const href = URL.createObjectURL(new Blob(parts, { type: format === "json" ? "application/json" : "text/markdown" }));
  h("a", { href, download: `${chat.name}.${ending}` }).click();
  setTimeout(() => URL.revokeObjectURL(href), 60000);
}
