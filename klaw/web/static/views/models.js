// Models to choose from: in a chat, and of a service that is being connected.

import { app } from "/static/app.js";
import { get } from "/static/api.js";
import { h, searchField } from "/static/dom.js";
import { failure, openDialog } from "/static/forms.js";
import { number, said, t } from "/static/i18n.js";
import { vary } from "/static/views/variants.js";

const MOST = 50, SEARCHED = 8;

/** What a model can do, as far as it is known. */
export function able(model) {
  const length = model.context_tokens && t("{count} tokens", { count: number(model.context_tokens) });
  return [length, ...["tools", "images", "thinking"].map((each) => model[each] && t(each)), model.prices && said(model.prices)].filter(Boolean).join(" · ");
}

/** A list of models with a search; `choose` gets the chosen one. */
export function modelList(models, choose) {
  const list = h("ul.list"), told = h("p.hint", { role: "status" });
  const draw = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = models.filter(({ name }) => words.every((word) => name.toLowerCase().includes(word)));
    told.textContent = found.length > MOST ? t("{count} models: type a part of the name.", { count: number(found.length) }) : found.length ? "" : t("No model has this in its name.");
    list.replaceChildren(...found.slice(0, MOST).map((each) => h("li", h("button", { type: "button", class: "choice", onclick: () => choose(each) },
      h("strong", each.name), each.note && h("span.hint", ` ${each.note}`), h("span.hint.about", able(each))))));
  };
  const search = searchField(t("Search"), { hidden: models.length <= SEARCHED, oninput: draw });
  draw();
  return [search, told, list];
}

/** Let a person choose which model answers in a chat from now on. */
export const choose = (chat) => chosen(chat, t("Model of this chat"), (name, usual) => app.socket.send(chat, `/model ${name === usual ? "default" : name}`));

/** Ask the question before an answer again, of a model that the person chooses. */
export const again = (chat, seq) => chosen(chat, t("Answer again with …"), (model) => vary(chat, "regenerate", { seq, model }));

async function chosen(chat, title, done) {
  const dialog = openDialog(title);
  try {
    const { models, this_chat: used, default: usual } = await get(`/chats/${encodeURIComponent(chat)}/models`);
    const notes = (name) => [name === used && t("this chat"), name === usual && t("default")].filter(Boolean).join(", ");
    dialog.show(modelList(models.map((each) => ({ ...each, note: notes(each.name) })), ({ name }) => {
      dialog.close();
      done(name, usual);
    }));
  } catch (error) {
    dialog.show(failure(error));
  }
}
