import { app, chatPath, get, h, inLine, openDialog, said, searchField, status, t } from "../forms.js";
import { vary } from "./variants.js";

const MOST = 50, SEARCHED = 8;

const able = (model) => inLine(
	model.context_tokens && t("{count} tokens", { count: model.context_tokens }),
	["tools", "images", "thinking"].map((each) => model[each] && t(each)), model.prices && said(model.prices));

export function modelList(models, choose) {
	const list = h("ul.list"), told = status();
	const row = (model) => h("li", h("button.choice", { type: "button", onclick: () => choose(model) },
		h("strong", model.name), model.note && h("span.hint", ` ${model.note}`), h("span.hint.about", able(model))));
	const draw = () => {
		const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
		const found = models.filter(({ name }) => words.every((word) => name.toLowerCase().includes(word)));
		told.textContent = found.length > MOST
			? t("{count} models: type a part of the name.", { count: found.length })
			: found.length ? "" : t("No model has this in its name.");
		list.replaceChildren(...found.slice(0, MOST).map(row));
	};
	const search = searchField("Search", { hidden: models.length <= SEARCHED, oninput: draw });
	draw();
	return [search, told, list];
}

export const choose = (chat) => chosen(chat, "Model of this chat",
	(name, usual) => app.socket.send(chat, `/model ${name === usual ? "default" : name}`));

export const again = (chat, seq) =>
	chosen(chat, "Answer again with …", (model) => vary(chat, "regenerate", { seq, model }));

const chosen = (chat, title, done) => openDialog(t(title), async (dialog) => {
	const { models, this_chat: used, default: usual } = await get(`${chatPath(chat)}/models`);
	const noteOf = (name) => [name === used && t("this chat"), name === usual && t("default")].filter(Boolean).join(", ");
	dialog.show(modelList(models.map((each) => ({ ...each, note: noteOf(each.name) })), ({ name }) => {
		dialog.close();
		done(name, usual);
	}));
});
