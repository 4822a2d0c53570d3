// Scheduled tasks: the list, one task's runs, one run with all that was said in it.

import { app, backTo, date, form, formDialog, get, h, inLine, markdown, number, openDialog, patch, post, remove, said, t, toast, when } from "../forms.js";
import { Panel, table, term } from "../panel.js";
import { fieldsOf } from "../records.js";
import { done, showHistory } from "./memory.js";

const MOMENT = { weekday: "short", day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit" };

const moment = (iso, zone) => date(iso, { ...MOMENT, timeZone: zone, timeZoneName: "short" });

const status = (run) => t(run.status === "waiting" ? "queued" : run.status.replace("_", " "));
const path = (...names) => `#/tasks/${names.map(encodeURIComponent).join("/")}`;
const versionOf = (task) => inLine(task.trigger.shown, !task.enabled && t("switched off"), task.inject_into, task.message);
const tokens = (run) => number(run.prompt_tokens + run.completion_tokens);

class Tasks extends Panel {
  every = 3000;

  async load() {
    const [task, run] = this.where;
    if (run) {
      const [shown, said] = await Promise.all(["", "/transcript"].map((more) => get(`/runs/${encodeURIComponent(run)}${more}`)));
      return { run: shown.run, said };
    }
    if (task) return get("/runs", { task: task === "*" ? null : task, limit: this.limit || 20 });
    return get("/schedule");
  }

  go(where) {
    this.limit = 20;
    super.go(where);
  }

  draw(data) {
    return data.run ? this.drawRun(data.run, data.said) : data.runs ? this.drawRuns(data) : this.drawTasks(data.tasks);
  }

  drawTasks(tasks) {
    return [
      h("header.row", h("h1", t("Tasks")),
        h("button.main", { "data-key": "remind", onclick: () => remind("", null, this) }, t("Remind me")),
        h("button", { "data-key": "new", onclick: () => edit(tasks, this) }, t("New task")),
        h("button.quiet", { "data-key": "zone", onclick: () => this.askZone() }, app.me.zone || t("Time zone")),
        h("a", { href: path("*") }, t("All runs"))),
      !tasks.length && h("p.none", t("No tasks yet. Schedule a reminder or a question, once or repeating.")),
      h("ul.cards", tasks.map((task) => this.card(task))),
    ];
  }

  card(task) {
    const { name, enabled, last_run: last } = task;
    const url = `/schedule/${encodeURIComponent(name)}`;
    const next = !enabled ? t("switched off") : task.running ? t("running now") : task.next_fires.length ? moment(task.next_fires[0], task.zone) : t("never");
    const again = () => this.refresh();
    const button = (word, work) => h("button", { "data-key": `${name} ${word}`, "aria-label": `${t(word)}: ${name}`, onclick: work }, t(word));
    return h("li", { "data-task": name },
      h("h2", h("a", { href: path(name), "data-key": name }, name), " ", task.trigger.repeat ? t(task.trigger.repeat) : task.trigger.kind === "at" ? "" : h("code", task.trigger.shown)),
      h("p.clamp", task.message),
      h("dl",
        term("Next", next),
        task.inject_into && term("Post results to", task.inject_into),
        last && term("Last run", h("a", { href: path(name, last.id) }, `${status(last)}, ${when(last.started_at)}`))),
      task.warning && h("p.warn", said(task.warning)),
      h("div.buttons",
        button("Run now", () => this.change(() => post(`${url}/run`))),
        button("Edit", () => edit([], this, task)),
        button(enabled ? "Switch off" : "Switch on", () => this.change(() => post(`${url}/${enabled ? "disable" : "enable"}`))),
        button("History", () => showHistory(url, (each) => each.task && versionOf(each.task), again)),
        button("Remove", () => this.change(async () => { await remove(url); done(t("Removed."), () => post(`${url}/undo`), location.hash, again); }))));
  }

  askZone() {
    const value = app.me.zone || Intl.DateTimeFormat().resolvedOptions().timeZone;
    formDialog(t("Time zone"), [{ name: "zone", label: t("Time zone"), value, autocomplete: "off" }], async ({ zone }) => {
      app.me.zone = (await post("/zone/set", { zone })).zone;
      this.go(this.where);
    });
  }

  drawRuns({ task, runs, next }) {
    return [
      h("header.row", backTo("#/tasks", t("Tasks")), h("h1", task ? `${t("Runs")}: ${task}` : t("All runs"))),
      runs.length ? table(["Started", "Task", "Status", "Tokens", "Note"], runs.map((run) => h("tr",
        h("td", h("a", { href: path(run.task, run.id), "data-key": run.id }, when(run.started_at))),
        h("td", run.task), h("td", status(run)), h("td.number", tokens(run)),
        h("td", said(run.note || run.error || "")))))
        : h("p.none", t("No runs yet.")),
      next && this.limit < 100 && h("button", { "data-key": "more", onclick: () => { this.limit = 100; this.refresh(); } }, t("More")),
    ];
  }

  drawRun(run, whole) {
    const goesOn = ["running", "waiting"].includes(run.status);
    return [
      h("header.row", backTo(path(run.task), t("Runs")), h("h1", run.task),
        goesOn && h("button", { "data-key": "cancel", onclick: () => this.change(() => post("/runs/cancel", { run: run.id })) }, t("Cancel run"))),
      h("dl",
        term("Status", status(run), run.error && ` (${said(run.error)})`), term("Started", when(run.started_at)),
        term("Model", run.model), term("Tokens", tokens(run)), run.note && term("Note", said(run.note))),
      h("h2", t("Request")), h("pre", run.message),
      run.result && [h("h2", t("Answer")), h("div.answer", markdown(run.result))],
      h("details", { "data-key": "transcript" }, h("summary", t("Transcript")),
        whole.cut && h("p.hint", t("The beginning is left out: the run is very long.")),
        whole.messages.length ? whole.messages.map((each) => h("div.said",
          h("strong", each.role), each.content && h("pre", each.content),
          each.calls.map((call) => h("pre.tool", `${call.name} ${call.arguments}`))))
          : h("p.hint", t("Nothing was said in this run."))),
    ];
  }
}

const ORDER = ["message", "when", "injectInto", "name", "model", "timeout", "maxTokens", "dailyTokens"];
const FORM = {
  cron: null, every: null, at: null, zone: null, now: null, enabled: null, reminder: null, message: { rows: 3, hint: "" }, injectInto: { list: "chats" },
};
const REPEATS = ["", "every day", "on weekdays", "on weekends", "every week", "every month", "every year"];

/** Ask when to remind of a text; `view` is drawn again. */
export const remind = (text, chat, view) => edit([], view, null, { message: text, injectInto: chat || "" });

/** The form of a task, a new one among `tasks`, or a reminder (`given`). */
const edit = (tasks, view, task, given) => openDialog(task ? `${t("Task")} ${task.name}` : t(given ? "Remind me" : "New task"), async (dialog) => {
  const before = valuesOf(tasks, task, given);
  const [{ chats }, fields] = await Promise.all([get("/chats", { limit: 100 }), fieldsOf("schedule_add", before, FORM)]);
  fields.sort((one, other) => ORDER.indexOf(one.name) - ORDER.indexOf(other.name));
  fields.splice(2, 0, { name: "repeat", label: t("Repeat"), value: before.repeat, choices: REPEATS.map((each) => [each, t(each || "no")]) });
  const more = h("details", { hidden: Boolean(given || task?.reminder) }, h("summary", t("More")));
  const made = form(fields.filter(({ name }) => name !== "name" || !task), async ({ repeat, ...values }) => {
    const when = whenOf({ repeat, ...values }) || " ";
    let told = "";
    try {
      if (task) await change(task, before, { ...values, when });
      else if (given) ({ told } = await post("/remind", { text: values.message || " ", when, chat: values.injectInto || null }));
      else await post("/schedule", Object.fromEntries(Object.entries({ ...values, when }).filter(([, value]) => value)));
    } catch (error) {
      more.open ||= error.fields?.some(({ field }) => ORDER.indexOf(field) > 2);
      throw error;
    }
    dialog.close();
    if (told) toast(told, 10000);
    await view?.refresh();
  });
  const times = h("ol.times", { "aria-live": "polite", "aria-label": t("Next times") });
  const [, , repeat, last, ...rest] = made.querySelectorAll(".field");
  repeat.after(times);
  more.append(...rest);
  last.after(more);
  dialog.show(made, h("datalist", { id: "chats" }, chats.map((chat) => h("option", { value: chat.name }))));
  previewTimes(made, times);
  made.elements[given?.message ? "when" : "message"].focus();
  let timer;
  made.addEventListener("input", (event) => {
    if (!["when", "repeat"].includes(event.target.name)) return;
    clearTimeout(timer);
    timer = setTimeout(() => previewTimes(made, times), 250);
  });
});

function valuesOf(tasks, task, given) {
  let number = 1;
  while (tasks.some(({ name }) => name === `task-${number}`)) number += 1;
  const values = { name: `task-${number}`, message: "", when: "", repeat: "", timeout: "", injectInto: "", ...given };
  if (!task) return values;
  for (const name of ["injectInto", "model", "maxTokens", "dailyTokens"]) values[name] = String(task[name.replace(/[A-Z]/, (letter) => `_${letter.toLowerCase()}`)] ?? "");
  const { repeat, shown, kind } = task.trigger, [next] = task.next_fires;
  const isPlain = next && (kind === "at" || REPEATS.includes(repeat));
  return { ...values, when: isPlain ? next.slice(0, 16).replace("T", " ") : shown, repeat: isPlain ? repeat || "" : "",
    message: task.message, timeout: task.timeout_s === null ? "" : `${task.timeout_s}s` };
}

const whenOf = ({ when, repeat }) => (when && repeat ? `${repeat} ${when}` : when);

async function change(task, before, values) {
  const body = {}, was = { ...before, when: whenOf(before) };
  const changed = Object.entries(values).filter(([name, value]) => value !== (was[name] || "")), clear = [];
  for (const [name, value] of changed) value || name === "message" ? body[name] = value || " " : clear.push(name);
  if (clear.length) body.clear = clear;
  if (changed.length) await patch(`/schedule/${encodeURIComponent(task.name)}`, body);
}

async function previewTimes(form, times) {
  const { when } = form.elements, asked = whenOf({ when: when.value.trim(), repeat: form.elements.repeat.value });
  times.dataset.asked = asked;
  let answer = null, problem = "";
  try {
    if (asked) answer = await get("/schedule/preview", { when: asked });
  } catch (error) {
    problem = error.fields[0]?.message || error.message;
  }
  if (times.dataset.asked !== asked) return;
  when.toggleAttribute("aria-invalid", Boolean(problem));
  when.parentElement.querySelector(".error").textContent = problem;
  times.replaceChildren(...(answer ? answer.next_fires.slice(0, 3) : []).map((each) => h("li", moment(each, answer.zone))));
}

customElements.define("klaw-tasks", Tasks);
