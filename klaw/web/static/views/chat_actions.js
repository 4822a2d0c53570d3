import { app, attempt, chatPath, confirmed, get, h, later, menu, moveTo, post, remove, t, toast } from "../page.js";

/** A name of the form that the server knows as nobody's choice. */
export const madeName = () =>
	`chat-${Math.floor(10 * Math.random())}${Math.random().toString(36).slice(2, 9).padEnd(7, "0")}`;

export const titleOf = ({ title, name, temporary }) =>
	title || (/^chat-\d[\da-z]{7}$/.test(name) ? t(temporary ? "Temporary chat" : "New chat") : name);

export function newChat(temporary) {
	const key = `klaw.new.${temporary}`, name = localStorage.getItem(key) || madeName();
	localStorage.setItem(key, name);
	const chat = h("klaw-chat", { chat: name, temporary });
	const starts = chat.starts = async (event) => {
		chat.starts = () => null;
		if (localStorage.getItem(key) !== name) chat.chat = chat.files.chat = madeName(); // begun in another window
		try {
			if (temporary) await post(`/chats/${chat.chat}/temporary`);
		} catch (error) {
			chat.starts = starts;
			return toast(error.message);
		}
		chat.starts = null;
		localStorage.removeItem(key);
		chat.submit(event);
		chat.begun = true;
		moveTo(`#/chats/${chat.chat}`);
	};
	return chat;
}

export function openNew(kind = "") {
	location.hash = `#/chats/${kind}`;
	document.querySelector("klaw-chat textarea")?.focus();
}

export function beginning(chat) {
	const { temporary } = chat, ways = ["Help me plan ", "Explain to me in simple words: ", "Write a message to "];
	if (!temporary) ways.push("Remember that ");
	return h("div.empty", h("p", t("What's on your mind?")),
		temporary && h("p.hint", t("Not used for memory or search, and deleted permanently a day after its last message.")),
		ways.map((way) => h("button", () => chat.write(t(way)), t(way).replace(/:? $/, " …"))));
}

export const temporaryMark = ({ name, temporary, last_seq: last }, changed) => (temporary ? [
	h("span.badge", t("Temporary")),
	last ? h("button.quiet", () => attempt(post(`/chats/${name}/keep`).then(changed)), t("Keep this chat")) : "",
] : []);

const at = (chat) => chatPath(chat.name);

export function chatMenu(chat, changed, open = false) {
	const { name, pinned, archived, temporary } = chat, title = titleOf(chat);
	const change = (word, body) => attempt(post(`${at(chat)}/${word}`, body)).then(changed);
	const rename = async () => {
		const field = h("input", { value: title, maxLength: 200 });
		const asked = confirmed(h("label.field", t("Title"), field), "Save");
		field.select();
		if (await asked && field.value.trim()) change("rename", { title: field.value.trim() });
	};
	const forget = () => later("forgetting", "forgetting", null, () => gone(chat, changed), {
		title: t("Delete this chat", title), deed: "Delete",
		ask: ({ dry_run, with_facts }) => remove(at(chat), { dry_run, with_facts }),
	});
	return menu(t("Menu", title), [
		open && ["Start fresh", () => app.socket.send(name, "/new")],
		["Rename", rename],
		["Knowledge", () => later("knowledge/binding", "bind", chat, changed)],
		[pinned ? "Unpin" : "Pin", () => change("pin", { off: Boolean(pinned) })],
		archived ? ["Restore", () => change("restore")] : ["Archive", () => change("archive")],
		temporary && ["Keep this chat", () => change("keep")],
		!temporary && ["Save as Markdown", () => attempt(exported(chat, "markdown", "md"))],
		!temporary && ["Save as JSON", () => attempt(exported(chat, "json", "json"))],
		["Delete", forget],
	]);
}

function gone(chat, changed) {
	for (const key of ["draft", "seen", "files"]) localStorage.removeItem(`klaw.${key}.${chat.name}`);
	app.socket.chats.delete(chat.name);
	if (location.hash.startsWith(`#${at(chat)}`)) moveTo("#/chats");
	changed();
}

async function exported(chat, format, ending) {
	toast(t("The chat is being read …"));
	const parts = [];
	for (let after = 0; after !== null;) {
		const { text, next } = await get(`${at(chat)}/export`, { format, after });
		parts.push(text);
		after = next;
	}
	const href = URL.createObjectURL(new Blob(parts, { type: format === "json" ? "application/json" : "text/markdown" }));
	h("a", { href, download: `${chat.name}.${ending}` }).click();
	setTimeout(() => URL.revokeObjectURL(href), 60000);
}
