// Keeps the page's files, and shows notifications. The server says first what OWN, VERSION and FILES are.

const on = (type, take) => addEventListener(type, (event) => event.waitUntil(take(event)));

on("install", async () => {
	await (await caches.open(VERSION)).addAll(FILES.map((file) => new Request(file, { cache: "no-cache" })));
	await skipWaiting();
});

on("activate", async () => {
	for (const name of await caches.keys()) if (name.startsWith(OWN) && name !== VERSION) await caches.delete(name);
	await clients.claim();
});

let isKept = false; // whether the page is one that was kept: then so are its modules

addEventListener("fetch", (event) => {
	const { method, mode, url } = event.request, { origin, pathname } = new URL(url);
	if (method !== "GET" || origin !== location.origin || !FILES.includes(pathname)) return;
	event.respondWith(answer(event.request, pathname, mode === "navigate"));
});

async function answer(request, path, isPage) {
	const kept = await (await caches.open(VERSION)).match(path);
	if (isKept && !isPage && kept) return kept;
	const fresh = await fetch(request, isPage && kept ? { signal: AbortSignal.timeout(4000) } : {}).catch(() => null);
	const works = fresh?.status < 500;
	if (isPage) isKept = !works;
	return works ? fresh : kept || fresh || Response.error();
}

on("push", ({ data }) => notify(data.json()));
on("message", ({ data }) => notify(data)); // of a page out of sight

async function notify({ chat, title = "Klaw", text, tool }) {
	const words = location.search === "?ru" && await (await caches.match("static/ru.json"))?.json();
	const t = (english) => words?.[english] || english;
	const body = tool ? `${t("Waits for your permission")}: ${tool}` : text || t("New message");
	const data = `#/chats/${encodeURIComponent(chat)}`;
	await registration.showNotification(title, { body, tag: chat, renotify: true, icon: "static/icon-192.png", data });
}

on("notificationclick", async ({ notification }) => {
	notification.close();
	const [page] = await clients.matchAll({ type: "window", includeUncontrolled: true });
	page?.postMessage(notification.data);
	await (page ? page.focus() : clients.openWindow(`./${notification.data}`));
});
