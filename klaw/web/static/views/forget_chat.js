// Deleting a chat: first what would go, then the deed, then what still holds it.

import { app } from "/static/app.js";
import { remove } from "/static/api.js";
import { h } from "/static/dom.js";
import { t } from "/static/i18n.js";

/** Show what deleting a chat takes, and do it when that is wanted. `done` is called once it is done. */
export function forgetChat(chat, done) {
  const path = `/chats/${encodeURIComponent(chat.name)}`;
  const facts = h("input", { type: "checkbox", onchange: () => look() });
  const told = h("div", { class: "told", role: "status" });
  const go = h("button", { type: "button", class: "main", disabled: true, onclick: () => act() }, t("Delete"));
  const close = h("button", { value: "no" }, t("Cancel"));
  const choice = h("label", { class: "row" }, facts, t("Also facts, people, files and tasks that were made of it"));
  const dialog = h("dialog", { class: "ask", "aria-label": t("Delete this chat"), onclose: () => dialog.remove() },
    h("form", { method: "dialog" }, h("h1", {}, `${t("Delete this chat")}: ${chat.title || chat.name}`), told, choice,
      h("div", { class: "buttons" }, close, go)));
  const asking = async (dryRun) => {
    go.disabled = facts.disabled = true;
    try {
      return await remove(path, { dry_run: dryRun, with_facts: facts.checked });
    } catch (error) {
      told.replaceChildren(h("p", { class: "error", role: "alert" }, error.message || t("The server does not answer.")));
      return null;
    } finally {
      facts.disabled = false;
    }
  };
  const look = async () => {
    told.replaceChildren(h("p", { class: "hint" }, t("Looking for what would go …")));
    const found = await asking(true);
    if (!found) return;
    const going = found.things.filter((each) => each.goes), staying = found.things.filter((each) => !each.goes);
    told.replaceChildren(h("p", {}, t("This goes, for good:")), listed(going),
      ...(staying.length ? [h("p", {}, t("This stays:")), listed(staying)] : []), h("p", { class: "hint" }, t("This cannot be undone.")));
    go.disabled = false;
  };
  const act = async () => {
    told.replaceChildren(h("p", { class: "hint" }, t("It is being deleted …")));
    const proof = await asking(false);
    if (!proof) return;
    for (const key of ["draft", "seen"]) localStorage.removeItem(`klaw.${key}.${chat.name}`);
    app.socket.chats.delete(chat.name);
    const held = proof.still_held.map((each) => h("li", {}, `${each.path}: ${each.remedy}`));
    const clean = proof.searched ? "A search of all files finds its words nowhere." : "Its words are too short, or too common, to be looked for.";
    told.replaceChildren(h("p", {}, t("The chat is deleted.")), h("p", {}, t(held.length ? "Its words are still in:" : clean)), h("ul", {}, held));
    choice.remove();
    go.remove();
    close.textContent = t("Close");
    close.focus();
    if (location.hash.startsWith(`#${path}`)) location.hash = "#/chats";
    done();
  };
  document.body.append(dialog);
  dialog.showModal();
  look();
}

function listed(things) {
  return h("ul", { class: "things" }, things.map((each) => h("li", {}, `${t(each.kind)} ${each.name}`,
    each.text && `: “${each.text}”`, each.remedy && h("span", { class: "hint" }, ` (${each.remedy})`))));
}
