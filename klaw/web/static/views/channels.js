import { Panel, app, button, copy, form, formDialog, get, h, heading, inLine, list, openDialog, post, remove, row,
	section, t, when } from "../panel.js";

const HOW = {
	telegram: "Write to @BotFather in Telegram, send /newbot, choose a name, and paste the token that it answers.",
	matrix: "Make an account for Klaw, and paste its access token: in Element under All settings, Help & About.",
};
const NONE = "Talk with Klaw in your messenger: connect a bot of your own.";

export default class extends Panel {
	every = 5000;
	load = () => get("/channels");

	draw({ channels, conversations, waiting }) {
		const { operator } = app.me;
		const linked = ({ name }) => conversations.filter(({ channel }) => channel === name).map(this.conversation);
		return [
			heading("Channels", operator && [button("Connect Telegram", () => this.add("telegram")),
				button("Connect Matrix", () => this.add("matrix"))]),
			!channels.length && h("p", t(operator ? NONE : "The operator has not connected a messenger yet.")),
			waiting.length > 0 && section("Waiting to be let in", list("lines", waiting.map((each) => row([each.title || "?"],
				inLine(each.channel, each.group && t("group"), each.code),
				button("Let in", () => this.pair(each), { of: each.code }))))),
			channels.map((each) => section(each.name, each.problem ? h("p.error", each.problem)
				: h("p", each.bot ? t("Works as {bot}.", each) : t("Being connected …")), list("lines", linked(each)),
			h("div.buttons.start", each.bot && button("Connect me", () => this.invite(each), { of: each.name }),
				operator && button("Remove", () => this.change(() => remove(`/channels/${each.name}`),
					t("Remove {name}? Its conversations end; chats stay.", each)), { of: each.name })))),
			channels.length > 0 && section("You were told a code?",
				form([{ name: "code", label: t("Code"), autocomplete: "off" }], this.pair, { deed: "Let in" })),
		];
	}

	conversation = ({ id, title, user, group, chat }) => {
		const name = title || id, end = () => remove(`/channels/conversations/${id}`);
		return row([name, " ", h("a", { href: `#/chats/${encodeURIComponent(chat)}` }, chat)], group ? t("group") : user,
			button("Disconnect", () => this.change(end, t("Disconnect {name}?", { name })), { of: name }));
	};

	pair = ({ code }) => this.change(() => post("/channels/pair", { code }));

	add(type) {
		const fields = [type === "matrix"
			? { name: "homeserver", label: t("Homeserver"), hint: "https://" }
			: { name: "api_url", label: t("Bot API server of your own") },
		{ name: "token", label: t("Token"), type: "password", autocomplete: "off" }];
		formDialog(type === "matrix" ? "Connect Matrix" : "Connect Telegram", fields, async ({ api_url: own, ...given }) => {
			const made = await post("/channels", { type, ...given, ...(own && { api_url: own }) });
			this.refresh();
			return () => this.invite(made, made);
		}, { above: h("p", t(HOW[type])), deed: "Connect" });
	}

	invite = ({ name }, made) => openDialog(t("Connect me"), async (dialog) => {
		const { bot, url, picture, code, expires_at: until } = made || await post(`/channels/${name}/invite`);
		dialog.show(h("p", t("Open this with the phone, and send the code {code}.", { code })),
			h("img.qr", { src: picture, alt: t("QR code") }), h("p", h("a", { href: url, target: "_blank" }, bot)),
			h("p.hint", t("It works once, until {time}.", { time: when(until) })),
			button("Copy the code", () => copy(code)));
	});
}
