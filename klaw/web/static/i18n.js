// English stands in the code; ru.json has the Russian. Texts of the server stay English on the wire, for programs.

export const LANGUAGES = { en: "English", ru: "Русский" };
export const language = localStorage.getItem("klaw.language") || (navigator.language.startsWith("ru") ? "ru" : "en");
document.documentElement.lang = language;
const RU = Object.create(null); // a category may be called "constructor"
let forms; // of texts with braces

export async function learn(name = "ru") {
	if (language !== "ru") return;
	Object.assign(RU, await (await fetch(`static/${name}.json`)).json());
	forms = null;
}

await learn();

/** A text of the page. What stands in braces is taken from `values`; a single value stands behind a colon. */
export function t(text, values) {
	const found = RU[text] || text, shown = (value) => (typeof value === "number" ? number(value) : value);
	if (values?.constructor !== Object) return (values ?? null) === null ? found : `${found}: ${shown(values)}`;
	return found.replace(/\{(\w+)\}/g, (whole, name) => shown(values[name]) ?? whole);
}

const formsOf = (words) => Object.keys(words).filter((text) => text.includes("{"))
	.sort((one, other) => other.length - one.length).map((text) => {
		const pattern = text.replace(/[.*+?^$()|[\]\\]/g, "\\$&").replace(/\{(\w+)\}/g, "(?<$1>.+?)");
		return [text, new RegExp(`^${pattern}$`, "s")];
	});

/** A text of the server: its words, else those for its `code`, else as it came. What stands in braces is a text of the
 * server itself where its name has a capital; all else may be a name that somebody gave. */
export function said(text, code) {
	if (!text || RU[text]) return RU[text] || text;
	const [, what, hint] = /^(.+) \(([^()]+)\)$/s.exec(text) || [];
	if (hint && said(hint) !== hint) return `${said(what, code)} (${said(hint)})`;
	forms ||= formsOf(RU);
	for (const [form, pattern] of text.length < 2000 ? forms : []) {
		const values = pattern.exec(text)?.groups;
		if (!values) continue;
		for (const name in values) if (/^[A-Z]/.test(name)) values[name] = said(values[name], code);
		return t(form, { ...values });
	}
	const [, model, why] = /^((?:https?:\/\/|[\w-]+\/)\S+): (.+)$/s.exec(text) || [];
	if (why) return `${model}: ${said(why, code)}`;
	return RU[`#${code}`] || RU[`#${code?.split(":")[0]}`] || text;
}

/** What does not work, in a few words, without the cause. */
export function inShort({ code, text }) {
	const [kind, ...name] = code.split(":");
	return Object.hasOwn(IN_SHORT, kind) ? t(IN_SHORT[kind], { name: name.join(":") }) : said(text, code);
}

const MEANING = "Search by meaning does not work now: only words are looked for.";
const BUILT_IN = "The built-in model does not work now.";
const IN_SHORT = {
	llm: "{name}: the last try failed.", mcp: "The tools of {name} are not connected.",
	graph: "The graph {name} cannot be asked now.", actor: "A part of the server is being started again.",
	embeddings_loading: "Search by meaning is starting.", no_embeddings: MEANING, embeddings_failing: MEANING,
	no_llm: BUILT_IN, no_local_llm: BUILT_IN, backup_failed: "The last backup failed.",
};

export function setLanguage(chosen) {
	localStorage.setItem("klaw.language", chosen);
	location.reload();
}

export const date = (time, how) => new Intl.DateTimeFormat(language, how).format(new Date(time));
export const monthOf = (time) => date(time, { month: "long", year: "numeric" });

const isToday = (iso) => new Date(iso).toDateString() === new Date().toDateString();
const isThisYear = (iso) => new Date(iso).getFullYear() === new Date().getFullYear();

export const when = (iso) => date(iso, { dateStyle: isToday(iso) ? undefined : "medium", timeStyle: "short" });

export const day = (iso) => (isToday(iso) ? when(iso)
	: date(iso, isThisYear(iso) ? { day: "numeric", month: "short" } : { dateStyle: "medium" }));

export const number = (value, how) => new Intl.NumberFormat(language, how).format(value);

export const dollars = (value) => number(value, { style: "currency", currency: "USD",
	...(value && value < 1 ? { maximumSignificantDigits: 3 } : { maximumFractionDigits: 2 }) });

export function size(bytes) {
	const [unit, of] = bytes < 1e6 ? ["kilobyte", 1e3] : bytes < 1e9 ? ["megabyte", 1e6] : ["gigabyte", 1e9];
	return number(bytes / of, { style: "unit", unit, maximumFractionDigits: 1 });
}

export const inLine = (...texts) => texts.flat().filter(Boolean).join(" · ");
