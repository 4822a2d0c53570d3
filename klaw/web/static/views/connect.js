// Connecting a model: which service, its address and key, which of its models, and what for. It answers once before
// anything is changed.

import { app, dollars, failure, form, get, h, number, openDialog, post, t, toast } from "../forms.js";
import { modelList } from "./models.js";

const FEATURES = { summaries: "summaries of long chats", topics: "topics and facts" };

/** Ask for a model in a dialog and connect it; `changed` is called then. */
export function connect(changed = () => null) {
  const back = (act) => h("button", { type: "button", onclick: act }, t("Back"));
  const dialog = openDialog(t("Connect a model"), begin);

  async function begin() {
    const { services } = await get("/models/services");
    dialog.show(h("p", t("Which service has your model?")), h("ul.list", services.map((service) => h("li",
      h("button.choice", () => (service.found ? look(service) : where(service)), h("strong", t(service.name)),
        h("span.hint.about", t(service.found ? "answers on this machine" : service.has_key ? "a key is known" : service.key_page ? "needs a key" : service.url ? "was not found on this machine" : "")))))));
  }

  function where(service, problem) {
    const page = service.key_page && `https://${service.key_page}`;
    const fields = [
      { name: "url", label: t("Address"), value: service.url, hint: t("up to its version, mostly /v1") },
      { name: "key", label: t("Key"), type: "password", autocomplete: "off", hint: service.has_key ? t("A key is known; leave this empty to use it.") : t("It is kept in secrets.env on the server and not shown again.") },
    ];
    if (page) fields.reverse(); // its address is right already
    dialog.show(h("h2", t(service.name)), problem && failure(problem),
      page && h("p", h("a", { href: page, target: "_blank", rel: "noreferrer" }, t("Get a key"))),
      form(fields, (given) => look(service, Object.fromEntries(Object.entries(given).filter(([, value]) => value)), true), { button: t("Show its models"), more: back(() => dialog.load(begin)) }));
  }

  async function look(service, given = { url: service.url }, inForm = false) {
    const asked = { service: service.id, ...given };
    if (!inForm) dialog.show(h("p.hint", { role: "status" }, t("Asking the service …")));
    try {
      const { models } = await post("/models/look", asked);
      const chats = models.filter((each) => !each.embedding);
      dialog.show(h("h2", t(service.name)), chats.some((each) => each.prices) && h("p.hint", t("Prices are per million tokens.")), modelList(chats, ({ name }) => uses(service, { ...asked, model: name })), back(() => dialog.load(begin)));
    } catch (error) {
      if (inForm) throw error;
      where(service, error);
    }
  }

  function uses(service, asked) {
    const fields = [["chats", t("Chats")], ["background", t("Summaries, topics and facts")], ["tasks", t("Tasks")]].map(([name, label]) => ({ name, label, value: true }));
    const told = h("p.hint", { role: "status" });
    dialog.show(h("h2", asked.model), h("p", t("Use it for")), form(fields, async (given) => {
      const use = Object.keys(given).filter((name) => given[name]);
      told.textContent = t("Asking the model …");
      try {
        tried({ ...asked, use }, await post("/models/connect", { ...asked, use, dry_run: true }));
      } finally {
        told.textContent = "";
      }
    }, { button: t("Try it"), more: back(() => look(service, asked)) }), told);
  }

  function tried(asked, done) {
    const { chats, background } = done.cost;
    const cost = chats === null ? t("The cost of a day is unknown: the service gives no prices.") : !chats ? t("It is free.")
      : t("A day of 50 questions costs about {whole}, of it {background} for summaries, topics and facts.", { whole: dollars(chats + background), background: dollars(background) });
    const features = done.switched_on.map((each) => t(FEATURES[each])).join(", ");
    dialog.show(h("h2", asked.model), h("p", t("It answers after {seconds} s:", { seconds: number(done.seconds) })), h("blockquote", done.answer),
      done.tools !== null && h("p", done.tools ? t("It calls tools.") : t("It calls no tools: Klaw's stay unused.")), h("p", cost),
      features && h("p", t("This also switches on: {features}.", { features })),
      form([], async () => {
        const { model } = await post("/models/connect", { ...asked, test: false });
        dialog.close();
        toast(t("Connected: {model}", { model }));
        app.socket.hint = "";
        app.socket.say("frame", {});
        document.querySelector("klaw-chat")?.know();
        changed();
      }, { button: t("Use this model"), more: back(() => dialog.load(begin)) }));
  }

}
