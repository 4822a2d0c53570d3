// Slash commands: completed while they are typed; one that only shows something is stored nowhere.

import { chatPath, get, h, pointAt, post, said, t } from "../page.js";

let known = [];

export async function complete(chat) {
	if (!known.length) ({ commands: known } = await get("/chats/commands").catch(() => ({ commands: [] })));
	const { field } = chat, found = known.filter(({ word }) => word.startsWith(field.value.toLowerCase()));
	let at = 0;
	const close = () => {
		chat.completing?.list.remove();
		chat.completing = null;
		field.removeAttribute("aria-activedescendant");
	};
	const pick = (word) => {
		field.value = `${word} `;
		close();
		chat.typed();
	};
	const point = (step) => {
		at = (at + step + found.length) % found.length;
		pointAt(field, options, at);
	};
	chat.commands = (text) => run(chat, text);
	close();
	if (!field.value || !found.length) return;
	const options = found.map(({ word, help }) => h("li", () => {
		pick(word);
		field.focus();
	}, h("strong", word), " ", t(help)));
	const list = h("ul.commands", { role: "listbox", ariaLabel: t("Commands") }, options);
	chat.completing = { list, key({ key }) {
		const step = { ArrowDown: 1, ArrowUp: -1 }[key], { word } = found[at];
		if (step) point(step);
		else if (key === "Escape") close();
		else if (key === "Tab" || (key === "Enter" && field.value !== word)) pick(word);
		else return false;
		return true;
	} };
	chat.composer.before(list);
	point(0);
}

/** False: it is to be sent. */
function run(chat, text) {
	const [word] = text.trim().toLowerCase().split(/\s/);
	if (!known.some((each) => each.word === word && each.shows)) return false;
	const answer = h("pre.shown", { role: "status", dir: "auto" }, "…");
	chat.live.append(answer);
	post(`${chatPath(chat.chat)}/command`, { text }).catch((error) => ({ text: error.message })).then((told) => {
		answer.textContent = told.text.split("\n").map((line) => said(line)).join("\n");
		chat.follow();
	});
	return true;
}
