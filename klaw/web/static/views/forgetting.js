import { button, failure, h, mainButton, nameOf, openDialog, post, said, t } from "../forms.js";

const MOST = 50;
const TOO_SHORT = "The text is too short, or too common, to be looked for elsewhere.";

export function forgetting(what, done = () => null, { title = "Forget", deed = title, ask } = {}) {
	const dialog = openDialog(t(title)), asked = { with_facts: false, with_messages: false };
	const send = (given) => (ask ? ask(given) : post("/forget", { what, ...given }));
	const look = () =>
		dialog.load(async () => show(await send({ ...asked, dry_run: true })), "Checking what will be deleted …");
	const box = (name, text) => h("label.tick", t(text), h("input", { type: "checkbox", checked: asked[name],
		onchange: ({ target }) => {
			asked[name] = target.checked;
			look();
		} }));
	const show = ({ things, again, named, searched }) => {
		const going = things.filter((each) => each.goes), staying = things.filter((each) => !each.goes);
		const problem = h("div", { role: "status" });
		const forget = mainButton(deed, async () => {
			forget.disabled = true;
			problem.replaceChildren(t("Deleting …"));
			try {
				const proof = await send({ ...asked, dry_run: false });
				done();
				dialog.show(h("p", { role: "status" }, h("strong", t("Forgotten."))), proven(proof),
					h("div.buttons", mainButton("Close", dialog.close, { autofocus: true })));
			} catch (error) {
				problem.replaceChildren(failure(error));
				forget.disabled = false;
			}
		}, { className: "main danger", disabled: !going.length });
		dialog.show(
			going.length ? listed("This will be deleted permanently:", going) : h("p", t("Nothing will be deleted.")),
			staying.length > 0 && listed("This stays:", staying), saidAgain(again),
			named?.messages > 0 && h("p", `${t("Messages that name them and stay:")} ${named.messages}`),
			!searched && h("p.hint", t(TOO_SHORT)),
			box("with_facts", "Also delete facts, people, files and tasks that came from it"),
			(named || asked.with_messages) && box("with_messages", "Also the messages that name them"),
			problem, h("p.hint", t("This cannot be undone.")), h("div.buttons", button("Cancel", dialog.close), forget));
		forget.focus();
	};
	look();
}

const listed = (title, found) => [h("h2", t(title)), h("ul.things", { tabIndex: 0 },
	found.slice(0, MOST).map(({ kind, name, text, remedy }) => h("li", h("strong", t(kind)), ` ${name}`,
		text && h("span.quote", text), remedy && h("span.hint", said(remedy)))),
	found.length > MOST && h("li", t("and {count} more", { count: found.length - MOST })))];

const line = (title, found, each) => found.length > 0 && h("p", `${t(title)} ${found.map(each).join(", ")}`);

const saidAgain = (again) =>
	line("Said again in messages that stay:", again, ({ chat, seq }) => `${nameOf(chat)}#${seq}`);

function proven({ again, searched, everywhere, names = [], aside, still_kept, still_named, still_held: held }) {
	const still = Object.entries({ ...still_kept, ...still_named });
	const files = (title, found) => found.length > 0
		&& [h("p", t(title)), h("ul", found.map(({ path, remedy }) => h("li", `${path}: ${said(remedy)}`)))];
	return [
		saidAgain(again),
		still.map(([name, count]) => h("p", `${t("Still mentioned in what you keep:")} ${said(name)} ${count}`)),
		!still.length && !again.length && h("p", t(searched ? "Nothing else mentions it any more." : TOO_SHORT)),
		everywhere && searched && !held.length && h("p", t("A search of all files finds its words nowhere.")),
		files("Its words are still in:", held),
		line("Kept as a name only, in folders and logs:", names, ({ kind, name }) => `${t(kind)} ${name}`),
		files("Kept aside and not searched:", aside),
	];
}
