import { app, button, dollars, failure, form, get, h, openDialog, post, status, t, toast } from "../forms.js";
import { modelList } from "./models.js";

const FEATURES = { summaries: "summaries of long chats", topics: "topics and facts" };
const USES = { chats: "Chats", background: "Summaries, topics and facts", tasks: "Tasks" };

export function connect(changed = () => null) {
	const dialog = openDialog(t("Connect a model"), begin);
	const back = (act = () => dialog.load(begin)) => button("Back", act);

	async function begin() {
		const { services } = await get("/models/services");
		const row = (service) => {
			const { name, found, has_key: key, key_page: page, url } = service;
			const about = found ? "answers on this machine" : key ? "a key is known" : page ? "needs a key"
				: url ? "was not found on this machine" : "";
			return h("li", h("button.choice", () => (found ? look(service) : where(service)), h("strong", t(name)),
				h("span.hint.about", t(about))));
		};
		dialog.show(h("p", t("Which service has your model?")), h("ul.list", services.map(row)));
	}

	function where(service, problem) {
		const { name, url, key_page: page, has_key: key } = service, href = page && `https://${page}`;
		const fields = [
			{ name: "url", label: t("Address"), value: url, hint: t("up to its version, mostly /v1") },
			{ name: "key", label: t("Key"), type: "password", autocomplete: "off",
				hint: t(key ? "A key is known; leave this empty to use it."
					: "It is kept in secrets.env on the server and not shown again.") },
		];
		if (page) fields.reverse(); // its address is right already
		const send = (given) => look(service, Object.fromEntries(Object.entries(given).filter(([, value]) => value)), true);
		dialog.show(h("h2", t(name)), problem && failure(problem),
			page && h("p", h("a", { href, target: "_blank", rel: "noreferrer" }, t("Get a key"))),
			form(fields, send, { deed: "Show its models", more: back() }));
	}

	async function look(service, given = { url: service.url }, inForm = false) {
		const asked = { service: service.id, ...given };
		if (!inForm) dialog.show(status(t("Asking the service …")));
		try {
			const { models } = await post("/models/look", asked), chats = models.filter((each) => !each.embedding);
			dialog.show(h("h2", t(service.name)),
				chats.some((each) => each.prices) && h("p.hint", t("Prices are per million tokens.")),
				modelList(chats, ({ name }) => uses(service, { ...asked, model: name })), back());
		} catch (error) {
			if (inForm) throw error;
			where(service, error);
		}
	}

	function uses(service, asked) {
		const fields = Object.entries(USES).map(([name, label]) => ({ name, label: t(label), value: true }));
		const told = status();
		dialog.show(h("h2", asked.model), h("p", t("Use it for")), form(fields, async (given) => {
			const use = Object.keys(given).filter((name) => given[name]);
			told.textContent = t("Asking the model …");
			try {
				tried({ ...asked, use }, await post("/models/connect", { ...asked, use, dry_run: true }));
			} finally {
				told.textContent = "";
			}
		}, { deed: "Try it", more: back(() => look(service, asked)) }), told);
	}

	function tried(asked, { seconds, answer, tools, cost: { chats, background }, switched_on: features }) {
		const cost = t(chats === null ? "The cost of a day is unknown: the service gives no prices."
			: !chats ? "It is free."
				: "A day of 50 questions costs about {whole}, of it {background} for summaries, topics and facts.",
		{ whole: dollars(chats + background), background: dollars(background) });
		const connected = async () => {
			const { model } = await post("/models/connect", { ...asked, test: false });
			dialog.close();
			toast(t("Connected: {model}", { model }));
			app.socket.hint = "";
			app.socket.say("frame", {});
			document.querySelector("klaw-chat")?.know();
			changed();
		};
		dialog.show(h("h2", asked.model), h("p", t("It answers after {seconds} s:", { seconds })), h("blockquote", answer),
			tools !== null && h("p", t(tools ? "It calls tools." : "It calls no tools: Klaw's stay unused.")), h("p", cost),
			features.length > 0 && h("p", t("This also switches on: {features}.",
				{ features: features.map((each) => t(FEATURES[each])).join(", ") })),
			form([], connected, { deed: "Use this model", more: back() }));
	}
}
