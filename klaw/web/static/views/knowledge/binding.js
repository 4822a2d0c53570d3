import { form, get, h, openDialog, post, t } from "../../forms.js";

export const bind = ({ name: chat }, changed) => openDialog(t("Knowledge"), async (dialog) => {
	const now = async () => (await get("/kb/chat", { chat })).bases.map((each) => each.id);
	const [{ bases }, bound] = await Promise.all([get("/kb"), now()]);
	if (!bases.length) {
		const make = h("a", { href: "#/knowledge", onclick: dialog.close }, t("New base"));
		return dialog.show(h("p", t("There is no knowledge base yet."), " ", make));
	}
	const fields = bases.map(({ id, name, description }) =>
		({ name: id, label: name, value: bound.includes(id), hint: description }));
	dialog.show(form(fields, async (ticked) => {
		const others = (await now()).filter((id) => !(id in ticked));
		const chosen = [...others, ...Object.keys(ticked).filter((id) => ticked[id])];
		await (chosen.length ? post("/kb/use", { chat, bases: chosen }) : post("/kb/off", { chat }));
		dialog.close();
		changed();
	}, { edits: true }));
});
