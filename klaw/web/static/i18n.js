// The page's words, English and Russian.

const RU = {
  "Chats": "Чаты",
  "Memory": "Память",
  "Tasks": "Задачи",
  "Usage": "Расход",
  "System": "Система",
  "New chat": "Новый чат",
  "Name of the chat": "Имя чата",
  "Log in": "Войти",
  "Log out": "Выйти",
  "Token": "Токен",
  "Make one on the server with": "Создайте его на сервере командой",
  "This token is not valid.": "Этот токен не подходит.",
  "Message": "Сообщение",
  "Write a message": "Напишите сообщение",
  "Send": "Отправить",
  "Stop": "Остановить",
  "Retry": "Повторить",
  "Rename": "Переименовать",
  "Archive": "В архив",
  "Restore": "Вернуть",
  "Archived chats": "Архив",
  "Delete": "Удалить",
  "Cancel": "Отмена",
  "Save": "Сохранить",
  "Close": "Закрыть",
  "Title": "Название",
  "Attach a file": "Прикрепить файл",
  "Offline: what you write is kept and sent later.": "Нет связи: написанное сохранено и будет отправлено позже.",
  "waiting": "ждёт продолжения",
  "queued": "ждёт очереди",
  "recalling": "вспоминает",
  "thinking": "думает",
  "answering": "отвечает",
  "not sent yet": "ещё не отправлено",
  "You": "Вы",
  "stopped": "остановлено",
  "The newest": "К новым",
  "No messages yet. Say something.": "Сообщений ещё нет. Напишите что-нибудь.",
  "Allow": "Разрешить",
  "Refuse": "Отказать",
  "allowed": "разрешено",
  "denied": "отказано",
  "expired": "время вышло",
  "withdrawn": "отозвано",
  "Search": "Поиск",
  "Search in everything": "Искать во всём",
  "Nothing was found.": "Ничего не найдено.",
  "Made from": "Из чего сделано",
  "Light or dark": "Светлая или тёмная",
  "Language": "Язык",
  "Menu": "Меню",
  "tool call": "вызов инструмента",
  "result": "результат",
  "A new segment begins here.": "Здесь начинается новый сегмент.",
  "Delete this chat and everything that was learned from it?": "Удалить этот чат и всё, что из него узнано?",
  "messages": "сообщений",
  "The server does not answer.": "Сервер не отвечает.",
};

export const LANGUAGES = { en: "English", ru: "Русский" };
let language = localStorage.getItem("klaw.language") || (navigator.language.startsWith("ru") ? "ru" : "en");
document.documentElement.lang = language;

/** A text of the page in the person's language; what stands in braces is taken from `values`. */
export function t(text, values = {}) {
  const found = (language === "ru" && RU[text]) || text;
  return found.replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);
}

/** More words, of a view. */
export function words(more) {
  Object.assign(RU, more);
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
