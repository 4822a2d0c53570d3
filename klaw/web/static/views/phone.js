import { app, confirmed, get, h, language, post, remove, t, toast } from "../page.js";

const worker = navigator.serviceWorker, store = localStorage; // no worker without HTTPS
const HOW = "klaw.notified", ID = "klaw.push"; // "words" or "plain"; the server's id of this browser
const pushes = async () => (await worker?.getRegistration())?.pushManager;

export async function install() {
	const { socket } = app, tell = () => socket.online && socket.raw({ type: "visible", visible: !document.hidden });
	tell();
	socket.addEventListener("online", tell);
	document.addEventListener("visibilitychange", tell);
	if (!worker) return;
	if (language === "ru") document.querySelector("[rel=manifest]").href = "static/ru.webmanifest";
	socket.addEventListener("frame", ({ detail }) => notify(detail));
	worker.addEventListener("message", ({ data }) => { location.hash = data; });
	// Not with a certificate that is not trusted.
	await worker.register(`sw.js?${language}`, { updateViaCache: "none" }).catch(() => null);
	const known = store[ID] && await (await pushes())?.getSubscription();
	if (known) tellServer(known).catch(() => null); // the login may be a new one
}

async function notify({ type, chat, role, kind, content, replayed, tool }) {
	if (!store[HOW] || store[ID] || !document.hidden || replayed) return;
	const isAnswer = type === "message" && role === "assistant" && ["text", "scheduled"].includes(kind);
	if (type !== "approval" && !isAnswer) return;
	const title = document.querySelector(`[data-chat="${CSS.escape(chat)}"] .name`)?.textContent;
	const words = store[HOW] === "words" && { title, text: content?.slice(0, 160), tool };
	(await worker.ready).active.postMessage({ chat, ...words });
}

async function tellServer(subscription) {
	const { endpoint, keys } = subscription.toJSON();
	store[ID] = (await post("/push", { endpoint, ...keys, words: store[HOW] === "words" })).id;
}

async function switchOn(how) {
	if (await Notification.requestPermission() !== "granted") {
		throw new Error(t("The browser does not allow notifications from this address. Its settings can allow them."));
	}
	store[HOW] = how;
	try {
		const { pushManager } = await worker.ready, { key } = await get("/push");
		const asked = { userVisibleOnly: true, applicationServerKey: key };
		await tellServer(await pushManager.getSubscription() || await pushManager.subscribe(asked));
	} catch (error) {
		throw new Error(`${t("Only while this page is open:")} ${error.message}`);
	}
}

async function switchOff() {
	await (await (await pushes())?.getSubscription())?.unsubscribe();
	if (store[ID]) await remove(`/push/${store[ID]}`).catch(() => null); // it may have ended there
	[HOW, ID].forEach((key) => store.removeItem(key));
}

export async function notifications() {
	if (!worker) return toast(t("Notifications need HTTPS: docs/phone.md says how to set it up at home."));
	const { form, openDialog } = await import("../forms.js");
	const about =
		t("Of answers, reminders, results of tasks and questions that wait for you, while you do not have Klaw in sight.");
	const dialog = openDialog(t("Notifications"), h("p", about), form([
		{ name: "on", label: t("Notify me in this browser"), value: Boolean(store[HOW]) },
		{ name: "words", label: t("Show the title and the first words"), value: store[HOW] !== "plain" },
	], async ({ on, words }) => {
		await (on ? switchOn(words ? "words" : "plain") : switchOff());
		dialog.close();
	}));
}

export function clear() {
	for (const key of Object.keys(store)) if (!["klaw.theme", "klaw.language"].includes(key)) store.removeItem(key);
}

export async function logOut() {
	const question = t("Some messages were not sent yet. Logging out deletes them permanently.");
	if (app.socket.unsent.length && !await confirmed(question, "Log out")) return;
	await switchOff();
	app.socket.say = () => null; // its end would load the page anew before this is done
	try {
		await post("/logout");
	} catch (error) {
		delete app.socket.say;
		return toast(error.message);
	}
	clear();
	await (await worker?.getRegistration())?.unregister();
	for (const name of await globalThis.caches?.keys() || []) if (/^klaw\b/.test(name)) await caches.delete(name);
	location.reload();
}
