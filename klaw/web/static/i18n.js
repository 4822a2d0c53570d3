// The page's words. English stands in the code; ru.json has the Russian, and only who reads Russian loads it. The server's
// texts stay English on the wire, for programs: they are translated here, by exact text, by form, else by code.

export const LANGUAGES = { en: "English", ru: "Русский" };
let language = localStorage.getItem("klaw.language") || (navigator.language.startsWith("ru") ? "ru" : "en");
document.documentElement.lang = language;
const RU = Object.create(null); // a category may be called "constructor"
if (language === "ru") document.querySelector("link[rel=manifest]").href = "/static/ru.webmanifest";
if (language === "ru") Object.assign(RU, await (await fetch("/static/ru.json")).json());

/** Words that only one view has, from a file of its own. */
export async function learn(name) {
  if (language !== "ru") return;
  Object.assign(RU, await (await fetch(`/static/ru_${name}.json`)).json());
  forms = null;
}

/** A text of the page in the person's language; what stands in braces is taken from `values`. */
export function t(text, values = {}) {
  const found = RU[text] || text;
  return found.replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);
}

let forms;

/** Texts with something in braces, and how they look when that is filled in; the longest first. */
function formsOf(words) {
  return Object.keys(words).filter((text) => text.includes("{")).sort((one, other) => other.length - one.length)
    .map((text) => [text, new RegExp(`^${text.replace(/[.*+?^$()|[\]\\]/g, "\\$&").replace(/\{(\w+)\}/g, "(?<$1>.+?)")}$`, "s")]);
}

/** A text of the server in the person's language: its words, else those for its `code`, else as it came. What stands in
 * braces is a text of the server itself where its name has a capital; all else may be a name that somebody gave. */
export function said(text, code) {
  if (!text || RU[text]) return RU[text] || text;
  const [, what, hint] = /^(.+) \(([^()]+)\)$/s.exec(text) || [];
  if (hint && said(hint) !== hint) return `${said(what, code)} (${said(hint)})`;
  forms ||= formsOf(RU);
  for (const [form, pattern] of text.length < 2000 ? forms : []) {
    const values = pattern.exec(text)?.groups;
    if (values) return t(form, Object.fromEntries(Object.entries(values).map(([name, value]) => [name, /^[A-Z]/.test(name) ? said(value, code) : value])));
  }
  const [, model, why] = /^((?:https?:\/\/|[\w-]+\/)\S+): (.+)$/s.exec(text) || [];
  if (why) return `${model}: ${said(why, code)}`;
  return RU[`#${code}`] || RU[`#${code?.split(":")[0]}`] || text;
}

/** What does not work, in a few words; of what has a name in its `code` or a cause of its own, without the cause. */
export function inShort({ code, text }) {
  const [kind, ...name] = code.split(":");
  return Object.hasOwn(IN_SHORT, kind) ? t(IN_SHORT[kind], { name: name.join(":") }) : said(text, code);
}

const MEANING = "Search by meaning does not work now: only words are looked for.", BUILT_IN = "The built-in model does not work now.";
const IN_SHORT = {
  llm: "{name}: the last try failed.", mcp: "The tools of {name} are not connected.", graph: "The graph {name} cannot be asked now.",
  actor: "A part of the server is being started again.", embeddings_loading: "Search by meaning is starting.", no_embeddings: MEANING, embeddings_failing: MEANING, no_llm: BUILT_IN, no_local_llm: BUILT_IN,
  backup_failed: "The last backup failed.",
};

export function currentLanguage() {
  return language;
}

export function setLanguage(chosen) {
  localStorage.setItem("klaw.language", chosen);
  location.reload();
}

/** A stored time as people read it: local, short for today. */
export function when(iso) {
  const time = new Date(iso), today = new Date();
  const sameDay = time.toDateString() === today.toDateString();
  const how = sameDay ? { timeStyle: "short" } : { dateStyle: "medium", timeStyle: "short" };
  return new Intl.DateTimeFormat(language, how).format(time);
}

/** A stored time in a list: of today the time, else the day. */
export function day(iso) {
  const time = new Date(iso), today = new Date();
  const how = time.toDateString() === today.toDateString() ? { timeStyle: "short" }
    : time.getFullYear() === today.getFullYear() ? { day: "numeric", month: "short" } : { dateStyle: "medium" };
  return new Intl.DateTimeFormat(language, how).format(time);
}

/** A number as people write it. */
export function number(value) {
  return new Intl.NumberFormat(language).format(value);
}

/** US dollars; less than one with three digits that count. */
export function dollars(value) {
  const digits = value && value < 1 ? { maximumSignificantDigits: 3 } : { maximumFractionDigits: 2 };
  return new Intl.NumberFormat(language, { style: "currency", currency: "USD", ...digits }).format(value);
}

/** So many bytes. */
export function size(bytes) {
  const [unit, of] = bytes < 1e6 ? ["kilobyte", 1e3] : bytes < 1e9 ? ["megabyte", 1e6] : ["gigabyte", 1e9];
  return new Intl.NumberFormat(language, { style: "unit", unit, maximumFractionDigits: 1 }).format(bytes / of);
}
