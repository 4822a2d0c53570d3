import {
	Panel, app, button, copy, form, get, h, heading, inLine, mainButton, openDialog, post, row, select, t, when,
} from "../panel.js";

const FIRST =
	"This key is yours. From now on every connection needs one, also on this computer; this browser stays logged in.";

export default class extends Panel {
	every = 5000;
	load = () => get("/token");

	draw({ tokens, allow_local: isOpen }) {
		const { user: me, operator } = app.me, first = !tokens.length;
		const users = new Set([me, ...tokens.map((each) => each.user)]);
		const add = button(first ? "Make the first access key" : "Add a user", () => this.make(first, first ? me : ""));
		return [
			heading("Access", h("a", { href: "#/import" }, t("Import")), operator && add),
			isOpen && h("p", t("No login needed on this computer.")),
			[...users].map((user) => h("section", { "data-user": user }, h("h2", user),
				h("ul.lines", tokens.filter((each) => each.user === user).map((each) => this.token(each))),
				h("div.buttons.start", button("Add a phone", () => addPhone(user), { of: user }),
					operator && !first && button("New access key", () => this.make(false, user), { of: user }),
					operator && user !== me && button("Remove user", () => this.revoke(user,
						t("Remove {user}? All keys and sessions end; chats and files stay.", { user })), { of: user })))),
		];
	}

	token({ id, user, login_of: login, client, operator, created_at: made, expires_at: until }) {
		const question = `${t("Revoke this? Its connections are closed.")} (${user}, ${id})`;
		return row([t(client ? "MCP client: {client}" : login ? "Session" : "Access key", { client }), " ", h("code", id)],
			inLine(operator && t("operator"), t("made {time}", { time: when(made) }),
				until && t("until {time}", { time: when(until) })),
			button("Revoke", () => this.revoke(id, question), { of: `${user} ${id}` }));
	}

	revoke = (name, question) => this.change(() => post(`/token/${name}/revoke`), question);

	/** With the first key this computer stops being served without; this browser stays logged in. */
	make(first, name) {
		const fields = [
			!name && { name: "name", label: t("Name"), hint: t("a-z, 0-9, _ and -"), autocomplete: "off",
				autocapitalize: "none" },
			!first && { name: "operator", label: t("Manages the server and sees all users' data"), value: false },
		].filter(Boolean);
		const send = async (given) => {
			if (first) {
				clearInterval(this.timer);
				app.socket.socket.onclose = null;
			}
			const made = await post("/token", { name, operator: first, ...given }), { token, user } = made;
			if (first) await post("/login", { token }).catch(() => null);
			else this.refresh();
			const phone = () => {
				dialog.close();
				addPhone(user);
			};
			const secret = h("code.secret", token);
			dialog.show(h("p", t("Access key of {user}. Copy it now: it is not stored and not shown again.", { user })),
				h("p", secret), h("div.buttons", !first && button("Add a phone", phone), mainButton("Copy", () => copy(token))));
			if (first) secret.closest("dialog").addEventListener("close", () => location.reload());
		};
		const dialog = openDialog(t(name ? "New access key" : "Add a user"), first && h("p", t(FIRST)),
			form(fields, send, { deed: "Make an access key" }));
	}
}

function addPhone(user) {
	const show = async (dialog, address) => {
		const operator = app.me.operator && user === app.me.user;
		const told = await post("/token/phone", { address, operator }, { user }), { url, picture, addresses } = told;
		const others = addresses.map((each) => [each, each]);
		const choice = select(others, address, { onchange: () => dialog.load(() => show(dialog, choice.value)) });
		dialog.show(h("p", t("Scan this with the phone's camera: Klaw opens there, logged in as {user}.", { user })),
			h("img.qr", { src: picture, alt: t("QR code") }),
			h("p.hint", t("It works once, until {time}.", { time: when(told.expires_at) })),
			others.length > 1 && h("label.field", t("If the phone cannot open it, try another address:"), choice),
			h("div.buttons", mainButton("Copy the link", () => copy(url))));
	};
	const isHere = /^(localhost|127\.|\[::1\])/.test(location.hostname);
	openDialog(t("Add a phone"), (dialog) => show(dialog, isHere ? undefined : location.href.split("/#")[0]));
}
