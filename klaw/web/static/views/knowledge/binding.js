// Which knowledge bases a chat is answered from.

import { form, get, h, openDialog, post, t } from "../../forms.js";

/** Choose the bases of a chat (`name`). `changed` is called when they were changed. */
export const bind = (chat, changed) => openDialog(t("Knowledge"), async (dialog) => {
  const of = { chat: chat.name };
  const now = async () => (await get("/kb/chat", of)).bases.map((each) => each.id);
  const [{ bases }, bound] = await Promise.all([get("/kb"), now()]);
  const fields = bases.map((base) => ({ name: base.id, label: base.name, value: bound.includes(base.id), hint: base.description }));
  dialog.show(bases.length ? form(fields, async (ticked) => {
    const chosen = [...(await now()).filter((id) => !(id in ticked)), ...Object.keys(ticked).filter((id) => ticked[id])];
    await (chosen.length ? post("/kb/use", { ...of, bases: chosen }) : post("/kb/off", of));
    dialog.close();
    changed();
  }, { edits: true }) : h("p", t("There is no knowledge base yet."), " ", h("a", { href: "#/knowledge", onclick: dialog.close }, t("New base"))));
});
