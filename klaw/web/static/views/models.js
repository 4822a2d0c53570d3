// Models to choose from: in a chat, and of a service that is being connected.

import { app, chatPath, get, h, inLine, number, openDialog, said, searchField, t } from "../forms.js";
import { vary } from "./variants.js";

const MOST = 50, SEARCHED = 8;

function able(model) {
  const length = model.context_tokens && t("{count} tokens", { count: number(model.context_tokens) });
  return inLine(length, ["tools", "images", "thinking"].map((each) => model[each] && t(each)), model.prices && said(model.prices));
}

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

export const choose = (chat) => chosen(chat, t("Model of this chat"), (name, usual) => app.socket.send(chat, `/model ${name === usual ? "default" : name}`));

export const again = (chat, seq) => chosen(chat, t("Answer again with …"), (model) => vary(chat, "regenerate", { seq, model }));

const chosen = (chat, title, done) => openDialog(title, async (dialog) => {
  const { models, this_chat: used, default: usual } = await get(`${chatPath(chat)}/models`);
  const notes = (name) => [name === used && t("this chat"), name === usual && t("default")].filter(Boolean).join(", ");
  dialog.show(modelList(models.map((each) => ({ ...each, note: notes(each.name) })), ({ name }) => {
    dialog.close();
    done(name, usual);
  }));
});
