import {
	Panel, app, attempt, button, dropped, form, get, h, later, list, number, picked, post, row, said, section, t, upload,
	when,
} from "../panel.js";

const FIELDS = {
	me: { label: "Your name in the export", autocomplete: "off" },
	dates: { label: "Dates", choices: [["dmy", "day first"], ["mdy", "month first"], ["ymd", "year first"]] },
};

export default class extends Panel {
	every = 1500;
	given = {}; // what the export does not say itself

	async load() {
		const [{ imports }, now] = await Promise.all([get("/import"), get("/import/run")]);
		return { imports, now };
	}

	draw({ imports, now }) {
		const disabled = now.state === "running", take = ([file]) => this.take(file);
		this.bar = h("progress", { hidden: true, value: 0, ariaLabel: t("Import") });
		return [
			h("h1", t("Import")),
			h("div.drop", dropped(take), picked("Choose an export", take, { disabled }), this.bar, h("span.hint",
				t("or drop it here: the file that ChatGPT, Claude, Gemini, Telegram, WhatsApp, OpenClaw or Klaw gave you."))),
			h("section", { role: "status" }, now.state !== "none" && [h("h2", now.name), this.progress(now, imports)]),
			imports[0] && section("Imported", list("lines", imports.map(({ id, messages: count }) =>
				row(id, t("messages: {count}", { count }), button("Undo", () => this.undo(id), { of: id }))))),
		];
	}

	progress({ state, dry_run: dry, before, answer, error, field, upload: of, name }, imports) {
		const again = (fields, deed, dry_run) =>
			form(fields, (given) => this.begin({ upload: of, name, dry_run, ...given }), { deed });
		if (state === "running") {
			const added = imports.filter(({ id }) => !before.includes(id)).reduce((sum, each) => sum + each.messages, 0);
			return h("p", dry ? t("Looking what is in it …")
				: t("Importing … {count} messages so far. You may leave this page.", { count: added }));
		}
		if (state === "failed") {
			const { label, choices, ...more } = FIELDS[field] || {};
			const asked = { ...more, name: field, label: t(label), choices: choices?.map(([key, text]) => [key, t(text)]) };
			return [h("p.error", said(error)), field && again([asked], "Look again", true)];
		}
		const { messages, first_at: first, last_at: last, kept, left_out: out, unread, unread_count: unreadable } = answer;
		const counted = (found, what) =>
			Object.entries(found).map(([text, count]) => h("p.hint", `${what(text)}: ${number(count)}`));
		const topics = { name: "topics", label: t("Also build topics, which costs calls to the model"), value: false };
		return [
			h("p", t("{source}: {messages} messages in {chats} chats", answer),
				messages > 0 && `, ${when(first)} – ${when(last)}`),
			counted(kept, (text) => t(text)), counted(out, (why) => `${t("Not imported")}: ${said(why)}`),
			unread[0] && h("details", h("summary", t("Not read", unreadable)),
				h("ul", unread.map(({ what, why }) => h("li", `${what}: ${said(why)}`)))),
			dry ? again([topics], "Import it", false)
				: h("strong", t("Done: {added} added, {known} were here already.", answer)),
		];
	}

	async begin(given) {
		Object.assign(this.given, given);
		await post("/import/run", { zone: app.me.zone || undefined, ...this.given });
		await this.renew();
	}

	async take(file) {
		if (!file) return;
		const { bar } = this, { name, size } = file;
		Object.assign(bar, { hidden: false, max: size });
		this.given = {};
		const sent = upload("/import/files", file, (bytes) => { bar.value = bytes; }).finally(() => { bar.hidden = true; });
		attempt(sent.then((kept) => this.begin({ upload: kept.upload, name, dry_run: true })));
	}

	undo(origin) {
		later("forgetting", "forgetting", null, () => this.refresh(), { title: "Undo the import",
			ask: ({ with_facts, dry_run }) => post("/import/undo", { origin, with_facts, dry_run }) });
	}
}
