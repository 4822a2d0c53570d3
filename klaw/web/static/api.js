// What the page asks over HTTP. Errors are problems with a code, a text and fields.

import { said, t } from "./i18n.js";

export const unreachable = () => t("The server does not answer.");

export class Problem extends Error {
	constructor(status, { detail, code = "unreachable", errors = [] }) {
		const fields = errors.map(({ field, message }) => ({ field, message: said(message, code) }));
		super(fields.map((each) => `${each.field}: ${each.message}`).join("; ") || said(detail, code)
			|| (status ? `HTTP ${status}` : unreachable()));
		Object.assign(this, { status, code, fields });
	}
}

const V1 = "api/v1";

async function ask(method, path, query, body) {
	const given = Object.entries(query || {}).filter(([, value]) => (value ?? "") !== "");
	const asked = given.length ? `?${new URLSearchParams(given)}` : "";
	const how = { method, ...(body && { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } }) };
	let response, text;
	try {
		response = await fetch(V1 + path + asked, how);
		text = await response.text();
	} catch {
		throw new Problem(0, {});
	}
	const told = text && parsed(text, null);
	if (!response.ok || told === null) throw new Problem(response.status, told || {});
	return told;
}

export const chatPath = (chat) => `/chats/${encodeURIComponent(chat)}`;
export const get = (path, query) => ask("GET", path, query);
export const post = (path, body = {}, query) => ask("POST", path, query, body);
export const patch = (path, body) => ask("PATCH", path, null, body);
export const remove = (path, query) => ask("DELETE", path, query);

/** `fetch` does not say how far it is. A Problem has the seconds `after` which to try again. */
export const upload = (path, file, progress, signal) => new Promise((resolve, reject) => {
	const request = new XMLHttpRequest();
	request.open("POST", V1 + path);
	request.upload.onprogress = (event) => progress(event.loaded);
	request.onloadend = () => {
		const told = parsed(request.responseText, null), after = Number(request.getResponseHeader("Retry-After"));
		if (request.status === 201 && told) resolve(told);
		else reject(Object.assign(new Problem(request.status, told || {}), { after }));
	};
	signal?.addEventListener("abort", () => request.abort());
	request.send(file);
});

/** A text as JSON, or else: of an answer that is a proxy's page. */
export function parsed(text, otherwise = text) {
	try {
		return JSON.parse(text);
	} catch {
		return otherwise;
	}
}

let waiting = [];

/** Markdown as HTML; texts that are asked for together go in one request. */
export const rendered = (text) => new Promise((resolve, reject) => {
	if (waiting.push({ text, resolve, reject }) === 1) setTimeout(renderWaiting, 0);
});

async function renderWaiting() {
	const asked = waiting.splice(0, 100);
	if (waiting.length) setTimeout(renderWaiting, 0);
	try {
		const { html } = await post("/render", { texts: asked.map((each) => each.text) });
		asked.forEach((each, index) => each.resolve(html[index]));
	} catch (error) {
		asked.forEach((each) => each.reject(error));
	}
}
