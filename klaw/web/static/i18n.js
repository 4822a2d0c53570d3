// The page's words. English stands in the code; ru.json has the Russian, and only who reads Russian loads it.

export const LANGUAGES = { en: "English", ru: "Русский" };
let language = localStorage.getItem("klaw.language") || (navigator.language.startsWith("ru") ? "ru" : "en");
document.documentElement.lang = language;
const RU = language === "ru" ? await (await fetch("/static/ru.json")).json() : {};

/** A text of the page in the person's language; what stands in braces is taken from `values`. */
export function t(text, values = {}) {
  const found = RU[text] || text;
  return found.replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);
}

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

/** A number as people write it. */
export function number(value) {
  return new Intl.NumberFormat(language).format(value);
}

/** US dollars; less than one with three digits that count. */
export function dollars(value) {
  const digits = value && value < 1 ? { maximumSignificantDigits: 3 } : { maximumFractionDigits: 2 };
  return new Intl.NumberFormat(language, { style: "currency", currency: "USD", ...digits }).format(value);
}
