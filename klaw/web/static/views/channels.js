// Messengers in which people talk with Klaw: accounts, and who may write there.

import { Panel, app, button, form, formDialog, get, h, heading, inLine, later, openDialog, post, remove, row, t, when,
} from "../panel.js";

const ABOUT = {
	telegram: ["Connect Telegram", "Write to @BotFather in Telegram, send /newbot, choose a name, and paste the token that it answers."],
	matrix: ["Connect Matrix", "Make an account for Klaw on a homeserver, and paste its access token: in Element under All settings,"
		+ " Help & About."],
};

export default class extends Panel {
	every = 5000;
	load = () => get("/channels");

	draw({ channels, conversations, waiting }) {
		const { operator } = app.me, none = "Talk with Klaw in the messenger that you use anyway: connect a bot of your own.";
		return [
			heading("Channels", operator && Object.keys(ABOUT).map((type) =>
				button(ABOUT[type][0], () => this.add(type)))),
			!channels.length && h("p", t(operator ? none : "The operator has not connected a messenger yet.")),
			waiting.length > 0 && h("section", h("h2", t("Waiting to be let in")), h("ul.lines", waiting.map((each) =>
				row([each.title || "?"], inLine(each.channel, each.group && t("group"), each.code),
					button("Let in", () => this.pair(each), { of: each.code }))))),
			channels.map(({ name, bot, problem }) => h("section", { "data-channel": name }, h("h2", name),
				h(problem ? "p.error" : "p", problem || (bot ? t("Works as {bot}.", { bot }) : t("Being connected …"))),
				h("ul.lines", conversations.filter((each) => each.channel === name).map((each) => this.conversation(each))),
				h("div.buttons.start", bot && button("Connect me", () => this.invite(name), { of: name }),
					operator && button("Remove", () => this.change(() => remove(`/channels/${name}`),
						t("Remove {name}? Its conversations end; chats stay.", { name })), { of: name })))),
			channels.length > 0 && h("section", h("h2", t("You were told a code?")),
				form([{ name: "code", label: t("Code"), autocomplete: "off" }], (given) => this.pair(given), { deed: "Let in" })),
		];
	}

	conversation({ id, title, user, group, chat }) {
		const other = user !== app.me.user && !group && user, end = () => remove(`/channels/conversations/${id}`);
		return row([title || id], inLine(group && t("group"), other, h("a", { href: `#/chats/${encodeURIComponent(chat)}` }, chat)),
			button("Disconnect", () => this.change(end, t("Disconnect {title}?", { title: title || id })), { of: title || id }));
	}

	pair = ({ code }) => this.change(() => post("/channels/pair", { code }));

	/** Connect an account with its token, then show how to reach it. */
	add(type) {
		const [title, how] = ABOUT[type], fields = [
			type === "matrix" && { name: "homeserver", label: t("Homeserver"), hint: t("its address, beginning with https://") },
			{ name: "token", label: t("Token"), type: "password", autocomplete: "off" },
		].filter(Boolean);
		formDialog(title, fields, async (given) => {
			const made = await post("/channels", { type, ...given });
			this.refresh();
			return () => openDialog(t("Connect me"), (dialog) => showLink(dialog, made));
		}, { above: h("p", t(how)), deed: "Connect" });
	}

	invite = (name) => openDialog(t("Connect me"), async (dialog) => showLink(dialog, await post(`/channels/${name}/invite`)));
}

function showLink(dialog, { bot, url, picture, code, expires_at: until }) {
	dialog.show(h("p", t("Open this conversation, or scan it with the phone, and send the code {code}.", { code })),
		h("img.qr", { src: picture, alt: t("QR code") }),
		h("p", h("a", { href: url, target: "_blank", rel: "noopener" }, bot)),
		h("p.hint", t("It works once, until {time}.", { time: when(until) })),
		h("div.buttons", button("Copy the code", () => later("copying", "copy", code))));
}
