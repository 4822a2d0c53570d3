// What the page asks over HTTP. Errors are problems with a code, a text and fields.

import { said, t } from "/static/i18n.js";

export class Problem extends Error {
  constructor(status, { detail, code = "unreachable", errors = [] }) {
    const fields = errors.map(({ field, message }) => ({ field, message: said(message, code) }));
    super(fields.map((each) => `${each.field}: ${each.message}`).join("; ") || said(detail, code) || (status ? `HTTP ${status}` : t("The server does not answer.")));
    this.status = status;
    this.code = code;
    this.fields = fields;
  }
}

async function ask(method, path, { query, body } = {}) {
  const asked = Object.entries(query || {}).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const url = asked.length ? `${path}?${new URLSearchParams(asked)}` : path;
  const how = { method, headers: {} };
  if (body !== undefined) {
    how.headers["Content-Type"] = "application/json";
    how.body = JSON.stringify(body);
  }
  let response, text, told = null;
  try {
    response = await fetch(url, how);
    text = await response.text();
  } catch {
    throw new Problem(0, {});
  }
  try {
    told = text && JSON.parse(text);
  } catch {
    throw new Problem(response.status, {}); // a page of a proxy
  }
  if (!response.ok) throw new Problem(response.status, told || {});
  return told;
}

const V1 = "/api/v1";
export const get = (path, query) => ask("GET", V1 + path, { query });
export const post = (path, body = {}, query) => ask("POST", V1 + path, { body, query });
export const patch = (path, body) => ask("PATCH", V1 + path, { body });
export const remove = (path, query) => ask("DELETE", V1 + path, { query });

let waiting = [];

/** The HTML of a Markdown text; texts that are asked for together go in one request. */
export function rendered(text) {
  return new Promise((resolve, reject) => {
    waiting.push({ text, resolve, reject });
    if (waiting.length === 1) setTimeout(renderWaiting, 0);
  });
}

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
