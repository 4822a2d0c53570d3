// Forgetting: first what would go, then the deed, then the proof. What may be named: docs/memory.md.

import { failure, h, nameOf, openDialog, post, said, t } from "../forms.js";

const MOST = 50;
const TOO_SHORT = "The text is too short, or too common, to be looked for elsewhere.";

/** Show what forgetting would take, and do it when that is wanted. `done` is called once it is done. */
export function forgetting(what, done = () => null, { title = t("Forget"), deed = title, ask = (given) => post("/forget", { what, ...given }) } = {}) {
  const dialog = openDialog(title);
  const asked = { with_facts: false, with_messages: false };
  const look = () => dialog.load(async () => show(await ask({ ...asked, dry_run: true })), t("Checking what will be deleted …"));
  const box = (name, text) => h("label.tick", text, h("input", { type: "checkbox", checked: asked[name], onchange: (event) => {
    asked[name] = event.target.checked;
    look();
  } }));
  const show = (found) => {
    const going = found.things.filter((each) => each.goes), staying = found.things.filter((each) => !each.goes);
    const problem = h("div", { role: "status" });
    const button = h("button.main.danger", { disabled: !going.length, onclick: async () => {
      button.disabled = true;
      problem.replaceChildren(t("Deleting …"));
      try {
        const proof = await ask({ ...asked, dry_run: false });
        done();
        dialog.show(h("p", { role: "status" }, h("strong", t("Forgotten."))), proven(proof),
          h("div.buttons", h("button.main", { autofocus: true, onclick: () => dialog.close() }, t("Close"))));
      } catch (error) {
        problem.replaceChildren(failure(error));
        button.disabled = false;
      }
    } }, deed);
    dialog.show(
      going.length ? [h("h2", t("This will be deleted permanently:")), things(going)] : h("p", t("Nothing will be deleted.")),
      staying.length > 0 && [h("h2", t("This stays:")), things(staying)],
      again(found),
      found.named?.messages > 0 && h("p", `${t("Messages that name them and stay:")} ${found.named.messages}`),
      !found.searched && h("p.hint", t(TOO_SHORT)),
      box("with_facts", t("Also delete facts, people, files and tasks that came from it")),
      (found.named || asked.with_messages) && box("with_messages", t("Also the messages that name them")),
      problem, h("p.hint", t("This cannot be undone.")),
      h("div.buttons", h("button", () => dialog.close(), t("Cancel")), button));
    button.focus();
  };
  look();
}

function things(found) {
  const more = found.length - MOST;
  return h("ul.things", { tabIndex: 0 }, found.slice(0, MOST).map((each) => h("li", h("strong", t(each.kind)), ` ${each.name}`,
    each.text && h("span.quote", each.text), each.remedy && h("span.hint", said(each.remedy)))),
  more > 0 && h("li", t("and {count} more", { count: more })));
}

function again(found) {
  return found.again.length > 0 && h("p", `${t("Said again in messages that stay:")} ${found.again.map((each) => `${nameOf(each.chat)}#${each.seq}`).join(", ")}`);
}

/** What was looked through afterwards, and what still says it. */
function proven(proof) {
  const still = Object.values(proof.still_kept).length + Object.values(proof.still_named).length + proof.again.length;
  const files = (title, found) => found.length > 0 && [h("p", title), h("ul", found.map((each) => h("li", `${each.path}: ${said(each.remedy)}`)))];
  return [
    again(proof),
    still ? Object.entries({ ...proof.still_kept, ...proof.still_named }).map(([name, count]) => h("p", `${t("Still mentioned in what you keep:")} ${said(name)} ${count}`))
      : h("p", t(proof.searched ? "Nothing else mentions it any more." : TOO_SHORT)),
    proof.everywhere && proof.searched && !proof.still_held.length && h("p", t("A search of all files finds its words nowhere.")),
    files(t("Its words are still in:"), proof.still_held),
    proof.names?.length > 0 && h("p", `${t("Kept as a name only, in folders and logs:")} ${proof.names.map((each) => `${t(each.kind)} ${each.name}`).join(", ")}`),
    files(t("Kept aside and not searched:"), proof.aside),
  ].flat();
}
