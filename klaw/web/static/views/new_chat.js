// A chat before its first message, which makes it, and what a chat is called.

import { attempt, h, moveTo, post, t, toast } from "../page.js";

/** A name of the form that the server knows as nobody's choice. */
export const madeName = () => `chat-${Array.from(crypto.getRandomValues(new Uint8Array(8)), (byte, at) =>
  (byte % (at ? 36 : 10)).toString(36)).join("")}`;

const isMade = (name) => /^chat-\d[\da-z]{7}$/.test(name);

export const titleOf = ({ title, name, temporary }) =>
  title || (isMade(name) ? t(temporary ? "Temporary chat" : "New chat") : name);

export function newChat(temporary) {
  const key = `klaw.new.${temporary}`, name = localStorage.getItem(key) || madeName();
  localStorage.setItem(key, name);
  const chat = h("klaw-chat", { chat: name, temporary });
  const starts = chat.starts = async (event) => {
    chat.starts = () => null;
    if (localStorage.getItem(key) !== name) chat.chat = chat.files.chat = madeName(); // begun in another window
    try {
      if (temporary) await post(`/chats/${chat.chat}/temporary`);
    } catch (error) {
      chat.starts = starts;
      return toast(error.message);
    }
    chat.starts = null;
    localStorage.removeItem(key);
    chat.submit(event);
    chat.begun = true;
    moveTo(`#/chats/${chat.chat}`);
  };
  return chat;
}

export function openNew(kind = "") {
  location.hash = `#/chats/${kind}`;
  document.querySelector("klaw-chat textarea")?.focus();
}

export function beginning(chat) {
  const { temporary } = chat, ways = ["Help me plan ", "Explain to me in simple words: ", "Write a message to "];
  if (!temporary) ways.push("Remember that ");
  return h("div.empty", h("p", t("What's on your mind?")),
    temporary && h("p.hint", t("Not used for memory or search, and deleted permanently a day after its last message.")),
    ways.map((way) => h("button", () => chat.write(t(way)), t(way).replace(/:? $/, " …"))));
}

export const temporaryMark = ({ name, temporary, last_seq: last }, changed) => (temporary ? [
  h("span.badge", t("Temporary")),
  last ? h("button.quiet", () => attempt(post(`/chats/${name}/keep`).then(changed)), t("Keep this chat")) : "",
] : []);
