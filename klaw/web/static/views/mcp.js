import { Panel, button, form, formDialog, get, h, heading, inLine, list, openDialog, post, remove, row, said, t,
} from "../panel.js";

const STATES = { starting: "Being connected …", ready: "works", waiting: "Not connected", stopped: "stopped" };

export default class extends Panel {
	every = 5000;
	load = () => get("/mcp");

	draw({ servers }) {
		return [
			heading("MCP", button("Add", () => this.add())),
			h("p", t("Tools that models may call.")),
			list("lines", servers.map(({ name, kind, state, reason, tools }) => row(name,
				inLine(t(STATES[state]), said(reason), tools[0] && t("Tools", tools.length)),
				kind === "http" && button("Log in", () => this.logIn(name), { of: name }),
				button("Remove", () => this.change(() => remove(`/mcp/${name}`), t("Remove {name}?", { name })),
					{ of: name })))),
		];
	}

	add() {
		const fields = [{ name: "name", label: t("Name") }, { name: "url", label: t("Address"), hint: "https://" }];
		formDialog("Add", fields, async ({ name, url }) => {
			await post(`/mcp/${name}`, { url });
			this.refresh();
		});
	}

	logIn = (name) => openDialog(t("Log in"), async (dialog) => {
		const tell = ({ address, code, problem }) => dialog.show(
			h("p", address ? h("a", { href: address, target: "_blank" }, address) : said(problem) || t("Logged in.")),
			code && h("strong", code),
			address && !code && form([{ name: "answer", label: t("Where the browser was sent to, if it shows an error") }],
				async (given) => tell(await post(`/mcp/${name}/login/state`, given)), { deed: "Log in" }));
		tell(await post(`/mcp/${name}/login`));
	});
}
