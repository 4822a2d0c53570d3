// Forgetting: first what would go, then the deed. What may be named: docs/memory.md.

import { post } from "/static/api.js";
import { h, toast } from "/static/dom.js";
import { failure, openDialog } from "/static/forms.js";
import { t } from "/static/i18n.js";

const MOST = 50;

/** Show what forgetting would take, and do it when that is wanted. `done` is called once it is done. */
export function forgetting(what, done = () => null) {
  const dialog = openDialog(t("Forget"));
  const asked = { what, with_facts: false, with_messages: false };
  const look = async () => {
    dialog.show(h("p", { class: "hint", role: "status" }, t("Looking for what would go …")));
    try {
      show(await post("/forget", { ...asked, dry_run: true }));
    } catch (error) {
      dialog.show(failure(error));
    }
  };
  const box = (name, text) => h("label", { class: "tick" }, text, h("input", { type: "checkbox", checked: asked[name], onchange: (event) => {
    asked[name] = event.target.checked;
    look();
  } }));
  const show = (found) => {
    const going = found.things.filter((each) => each.goes), staying = found.things.filter((each) => !each.goes);
    const problem = h("div", {});
    const button = h("button", { class: "main danger", disabled: !going.length, onclick: async () => {
      button.disabled = true;
      try {
        const proof = await post("/forget", { ...asked, dry_run: false });
        dialog.close();
        toast([t("Forgotten."), ...said(proof.again)].join(" "));
        done();
      } catch (error) {
        problem.replaceChildren(failure(error));
        button.disabled = false;
      }
    } }, t("Forget"));
    dialog.show(
      going.length ? [h("h2", {}, t("This goes, for good:")), things(going)] : h("p", {}, t("Nothing goes.")),
      staying.length ? [h("h2", {}, t("This stays:")), things(staying)] : [],
      said(found.again).map((text) => h("p", {}, text)),
      found.named && found.named.messages ? h("p", {}, `${t("Messages that name them and stay:")} ${found.named.messages}`) : [],
      found.searched ? [] : h("p", { class: "hint" }, t("The text is too short, or too common, to be looked for elsewhere.")),
      box("with_facts", t("Also facts, people, files and tasks that were made of it")),
      found.named || asked.with_messages ? box("with_messages", t("Also the messages that name them")) : [],
      problem, h("p", { class: "hint" }, t("This cannot be undone.")),
      h("div", { class: "buttons" }, h("button", { onclick: () => dialog.close() }, t("Cancel")), button));
    button.focus();
  };
  look();
}

function things(found) {
  const more = found.length - MOST;
  return h("ul", { class: "things" }, found.slice(0, MOST).map((each) => h("li", {}, h("strong", {}, t(each.kind)), ` ${each.name}`,
    each.text && h("span", { class: "quote" }, each.text), each.remedy && h("span", { class: "hint", lang: "en" }, each.remedy))),
  more > 0 && h("li", {}, t("and {count} more", { count: more })));
}

function said(again) {
  return again.length ? [`${t("Said again in messages that stay:")} ${again.map((each) => `${each.chat.split(":").pop()}#${each.seq}`).join(", ")}`] : [];
}
