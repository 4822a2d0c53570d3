// Which knowledge bases a chat is answered from.

import { get, post } from "/static/api.js";
import { h } from "/static/dom.js";
import { failure, form, openDialog } from "/static/forms.js";
import { t } from "/static/i18n.js";

/** Choose the bases of a chat (`name`, `bases`). `changed` is called when they were changed. */
export async function bind(chat, changed) {
  const dialog = openDialog(t("Knowledge"), h("p", { class: "hint", role: "status" }, t("Loading …")));
  try {
    const { bases } = await get("/kb"), bound = new Set(chat.bases || []);
    const fields = bases.map((base) => ({ name: base.id, label: base.name, value: bound.has(base.id), hint: base.description }));
    dialog.show(bases.length ? form(fields, async (given) => {
      const chosen = Object.keys(given).filter((id) => given[id]);
      await (chosen.length ? post("/kb/use", { chat: chat.name, bases: chosen }) : post("/kb/off", { chat: chat.name }));
      dialog.close();
      changed();
    }) : h("p", {}, t("There is no knowledge base yet."), " ", h("a", { href: "#/knowledge", onclick: dialog.close }, t("New base"))));
  } catch (error) {
    dialog.show(failure(error));
  }
}
