// Scheduled tasks: the list, one task's runs, one run with all that was said in it.

import { app } from "/static/app.js";
import { get, patch, post, Problem, remove } from "/static/api.js";
import { backTo, h, markdown, toast } from "/static/dom.js";
import { failure, form, openDialog } from "/static/forms.js";
import { currentLanguage, number, said, t, when } from "/static/i18n.js";
import { Panel } from "/static/panel.js";
import { fieldsOf } from "/static/records.js";
import { done, showHistory } from "/static/views/memory.js";

const MOMENT = { weekday: "short", day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit" };

/** A time at which a task runs, on the clock of its zone. */
function moment(iso, zone) {
  return new Intl.DateTimeFormat(currentLanguage(), { ...MOMENT, timeZone: zone, timeZoneName: "short" }).format(new Date(iso));
}

const status = (run) => t(run.status === "waiting" ? "queued" : run.status.replace("_", " "));
const path = (...names) => `#/tasks/${names.map(encodeURIComponent).join("/")}`;
const versionOf = (task) => [task.trigger.shown, !task.enabled && t("switched off"), task.inject_into, task.message].filter(Boolean).join(" · ");
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
        h("dt", t("Next")), h("dd", next),
        task.inject_into && [h("dt", t("Post results to")), h("dd", task.inject_into)],
        last && [h("dt", t("Last run")), h("dd", h("a", { href: path(name, last.id) }, `${status(last)}, ${when(last.started_at)}`))]),
      task.warning && h("p.warn", said(task.warning)),
      h("div.buttons",
        button("Run now", () => this.change(() => post(`${url}/run`))),
        button("Edit", () => edit([], this, task)),
        button(enabled ? "Switch off" : "Switch on", () => this.change(() => post(`${url}/${enabled ? "disable" : "enable"}`))),
        button("History", () => showHistory(url, (each) => each.task && versionOf(each.task), again)),
        button("Remove", () => this.change(async () => { await remove(url); done(t("Removed."), () => post(`${url}/undo`), location.hash, again); }))));
  }

  askZone() {
    const dialog = openDialog(t("Time zone")), value = app.me.zone || Intl.DateTimeFormat().resolvedOptions().timeZone;
    dialog.show(form([{ name: "zone", label: t("Time zone"), value, autocomplete: "off" }], async ({ zone }) => {
      app.me.zone = (await post("/zone/set", { zone })).zone;
      dialog.close();
      this.go(this.where);
    }));
  }

  // -- runs --

  drawRuns({ task, runs, next }) {
    return [
      h("header.row", backTo("#/tasks", t("Tasks")), h("h1", task ? `${t("Runs")}: ${task}` : t("All runs"))),
      runs.length ? h("table", { tabIndex: 0 },
        h("thead", h("tr", ["Started", "Task", "Status", "Tokens", "Note"].map((name) => h("th", { scope: "col" }, t(name))))),
        h("tbody", runs.map((run) => h("tr",
          h("td", h("a", { href: path(run.task, run.id), "data-key": run.id }, when(run.started_at))),
          h("td", run.task), h("td", status(run)), h("td.number", tokens(run)),
          h("td", said(run.note || run.error || ""))))))
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
        h("dt", t("Status")), h("dd", status(run), run.error && ` (${said(run.error)})`),
        h("dt", t("Started")), h("dd", when(run.started_at)),
        h("dt", t("Model")), h("dd", run.model),
        h("dt", t("Tokens")), h("dd", tokens(run)),
        run.note && [h("dt", t("Note")), h("dd", said(run.note))]),
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

// -- the form --

const FIELDS = { injectInto: "inject_into", model: "model", maxTokens: "max_tokens", dailyTokens: "daily_tokens" };
const ORDER = ["message", "when", "injectInto", "name", "model", "timeout", "maxTokens", "dailyTokens"];
const FORM = {
  cron: null, every: null, at: null, zone: null, now: null, enabled: null, reminder: null, message: { rows: 3, hint: "" }, injectInto: { list: "chats" },
};
const REPEATS = ["", "every day", "on weekdays", "on weekends", "every week", "every month", "every year"];

/** Ask when to remind of a text; `view` is drawn again. */
export const remind = (text, chat, view) => edit([], view, null, { message: text, injectInto: chat || "" });

/** The form of a task, a new one among `tasks`, or a reminder (`given`). */
async function edit(tasks, view, task, given) {
  const before = valuesOf(tasks, task, given);
  const dialog = openDialog(task ? `${t("Task")} ${task.name}` : t(given ? "Remind me" : "New task"));
  let chats, fields;
  try {
    [{ chats }, fields] = await Promise.all([get("/chats", { limit: 100 }), fieldsOf("schedule_add", before, FORM)]);
  } catch (error) {
    return dialog.show(failure(error));
  }
  fields.sort((one, other) => ORDER.indexOf(one.name) - ORDER.indexOf(other.name));
  fields.splice(2, 0, { name: "repeat", label: t("Repeat"), value: before.repeat, choices: REPEATS.map((each) => [each, t(each || "no")]) });
  const more = h("details", { hidden: Boolean(given || task?.reminder) }, h("summary", t("More")));
  const made = form(fields.filter(({ name }) => name !== "name" || !task), async (values) => {
    let told = "";
    try {
      if (task) await change(task, before, values);
      else if (given) ({ told } = await post("/remind", { text: values.message || " ", when: whenOf(values) || " ", chat: values.injectInto || null }));
      else await post("/schedule", Object.fromEntries(Object.entries({ ...values, when: whenOf(values) || " " }).filter(([name, value]) => value && name !== "repeat")));
    } catch (error) {
      more.open ||= error.fields?.some(({ field }) => ORDER.indexOf(field) > 2);
      throw error;
    }
    dialog.close();
    if (told) toast(told, 10000);
    await view?.refresh();
  });
  const times = h("ol.times", { "aria-live": "polite", "aria-label": t("Next times") });
  const rows = [...made.querySelectorAll(".field")], rest = rows.splice(4);
  rows[2].after(times);
  more.append(...rest);
  rows[3].after(more);
  dialog.show(made, h("datalist", { id: "chats" }, chats.map((chat) => h("option", { value: chat.name }))));
  previewTimes(made, times);
  made.elements[given?.message ? "when" : "message"].focus();
  let timer;
  made.addEventListener("input", (event) => {
    if (!["when", "repeat"].includes(event.target.name)) return;
    clearTimeout(timer);
    timer = setTimeout(() => previewTimes(made, times), 250);
  });
}

function valuesOf(tasks, task, given) {
  let number = 1;
  while (tasks.some(({ name }) => name === `task-${number}`)) number += 1;
  const values = { name: `task-${number}`, message: "", when: "", repeat: "", timeout: "", injectInto: "", ...given };
  if (!task) return values;
  for (const [name, stored] of Object.entries(FIELDS)) values[name] = String(task[stored] ?? "");
  const { repeat, shown, kind } = task.trigger, [next] = task.next_fires;
  const isPlain = next && (kind === "at" || REPEATS.includes(repeat));
  return { ...values, when: isPlain ? next.slice(0, 16).replace("T", " ") : shown, repeat: isPlain ? repeat || "" : "",
    message: task.message, timeout: task.timeout_s === null ? "" : `${task.timeout_s}s` };
}

const whenOf = ({ when, repeat }) => (when && repeat ? `${repeat} ${when}` : when);

async function change(task, before, values) {
  const body = {}, clear = [];
  for (const [name, value] of Object.entries(values)) {
    if (name !== "repeat" && value !== (before[name] || "")) value || ["message", "when"].includes(name) ? body[name] = value || " " : clear.push(name);
  }
  if (whenOf(values) !== whenOf(before)) body.when = whenOf(values) || " ";
  if (clear.length) body.clear = clear;
  if (Object.keys(body).length) await patch(`/schedule/${encodeURIComponent(task.name)}`, body);
}

/** Show the next times, or what is wrong with them. */
async function previewTimes(form, times) {
  const { when } = form.elements, asked = whenOf({ when: when.value.trim(), repeat: form.elements.repeat.value });
  times.dataset.asked = asked;
  let answer = null, problem = "";
  try {
    if (asked) answer = await get("/schedule/preview", { when: asked });
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    problem = error.fields[0]?.message || error.message;
  }
  if (times.dataset.asked !== asked) return;
  when.toggleAttribute("aria-invalid", Boolean(problem));
  when.parentElement.querySelector(".error").textContent = problem;
  times.replaceChildren(...(answer ? answer.next_fires.slice(0, 3) : []).map((each) => h("li", moment(each, answer.zone))));
}

customElements.define("klaw-tasks", Tasks);
