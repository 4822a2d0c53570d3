// Scheduled tasks: the list, one task's runs, one run with all that was said in it.

import { get, patch, post, Problem, remove } from "/static/api.js";
import { h, markdown, toast } from "/static/dom.js";
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
      h("header", { class: "row" }, h("h1", {}, t("Tasks")),
        h("button", { class: "main", "data-key": "new", onclick: () => this.edit() }, t("New task")),
        h("a", { href: path("*") }, t("All runs"))),
      !tasks.length && h("p", { class: "hint" }, t("No tasks yet. Schedule a reminder or a question, once or repeating.")),
      h("ul", { class: "cards" }, tasks.map((task) => this.card(task))),
    ];
  }

  card(task) {
    const { name, enabled, last_run: last } = task;
    const url = `/schedule/${encodeURIComponent(name)}`;
    const next = !enabled ? t("switched off") : task.running ? t("running now") : task.next_fires.length ? moment(task.next_fires[0], task.zone) : t("never");
    const again = () => this.refresh();
    const button = (word, work) => h("button", { "data-key": `${name} ${word}`, "aria-label": `${t(word)}: ${name}`, onclick: work }, t(word));
    return h("li", { "data-task": name },
      h("h2", {}, h("a", { href: path(name), "data-key": name }, name), " ", h("code", {}, task.trigger.shown)),
      h("p", { class: "clamp" }, task.message),
      h("dl", {},
        h("dt", {}, t("Next")), h("dd", {}, next),
        task.inject_into && [h("dt", {}, t("Post results to")), h("dd", {}, task.inject_into)],
        last && [h("dt", {}, t("Last run")), h("dd", {}, h("a", { href: path(name, last.id) }, `${status(last)}, ${when(last.started_at)}`))]),
      task.warning && h("p", { class: "warn" }, said(task.warning)),
      h("div", { class: "buttons" },
        button("Run now", () => this.change(() => post(`${url}/run`))),
        button("Edit", () => this.edit(task)),
        button(enabled ? "Switch off" : "Switch on", () => this.change(() => post(`${url}/${enabled ? "disable" : "enable"}`))),
        button("History", () => showHistory(url, (each) => each.task && versionOf(each.task), again)),
        button("Remove", () => this.change(async () => { await remove(url); done(t("Removed."), () => post(`${url}/undo`), location.hash, again); }))));
  }

  // -- the form --

  async edit(task) {
    const dialog = openDialog(task ? `${t("Task")} ${task.name}` : t("New task"));
    const before = valuesOf(task);
    let chats, fields;
    try {
      [{ chats }, fields] = await Promise.all([get("/chats", { limit: 100 }), fieldsOf("schedule_add", before, FORM)]);
    } catch (error) {
      return dialog.show(failure(error));
    }
    fields.sort((one, other) => ORDER.indexOf(one.name) - ORDER.indexOf(other.name));
    const zones = Intl.supportedValuesOf ? Intl.supportedValuesOf("timeZone") : [];
    const choices = [["cron", t("On a schedule")], ["every", t("Every …")], ["at", t("Once")]];
    const kind = { name: "kind", label: t("When"), value: before.kind, choices };
    const made = form([...fields.slice(0, 2), kind, ...fields.slice(2)].slice(task ? 1 : 0), async (values) => {
      if (task) await change(task, before, values);
      else await post("/schedule", { ...given(values), [values.kind]: values[values.kind] || " " });
      dialog.close();
      await this.refresh();
    });
    const row = (name) => made.elements.namedItem(name).closest(".field");
    const times = h("ol", { class: "times", "aria-live": "polite", "aria-label": t("Next times") });
    row("zone").after(h("p", { class: "hint" }, t("Next times")), times);
    const list = (id, values) => h("datalist", { id }, values.map((value) => h("option", { value })));
    dialog.show(made, list("chats", chats.map((chat) => chat.name)), list("zones", zones));
    const arrange = () => TIMES.forEach((name) => { row(name).hidden = !shownFor(made.elements.kind.value).includes(name); });
    arrange();
    previewTimes(made, times);
    made.elements.namedItem(task ? "message" : "name").focus();
    let timer;
    made.addEventListener("input", (event) => {
      if (![...TIMES, "kind"].includes(event.target.name)) return;
      arrange();
      clearTimeout(timer);
      timer = setTimeout(() => previewTimes(made, times), 250);
    });
  }

  // -- runs --

  drawRuns({ task, runs, next }) {
    return [
      h("header", { class: "row" }, h("a", { href: "#/tasks", "aria-label": t("Tasks") }, "‹"), h("h1", {}, task ? `${t("Runs")}: ${task}` : t("All runs"))),
      runs.length ? h("table", { tabIndex: 0 },
        h("thead", {}, h("tr", {}, ["Started", "Task", "Status", "Tokens", "Note"].map((name) => h("th", { scope: "col" }, t(name))))),
        h("tbody", {}, runs.map((run) => h("tr", {},
          h("td", {}, h("a", { href: path(run.task, run.id), "data-key": run.id }, when(run.started_at))),
          h("td", {}, run.task), h("td", {}, status(run)), h("td", { class: "number" }, tokens(run)),
          h("td", {}, said(run.note || run.error || ""))))))
        : h("p", { class: "hint" }, t("No runs yet.")),
      next && this.limit < 100 && h("button", { "data-key": "more", onclick: () => { this.limit = 100; this.refresh(); } }, t("More")),
    ];
  }

  drawRun(run, whole) {
    const goesOn = ["running", "waiting"].includes(run.status);
    return [
      h("header", { class: "row" }, h("a", { href: path(run.task), "aria-label": t("Runs") }, "‹"), h("h1", {}, run.task),
        goesOn && h("button", { "data-key": "cancel", onclick: () => this.change(() => post("/runs/cancel", { run: run.id })) }, t("Cancel run"))),
      h("dl", {},
        h("dt", {}, t("Status")), h("dd", {}, status(run), run.error && ` (${said(run.error)})`),
        h("dt", {}, t("Started")), h("dd", {}, when(run.started_at)),
        h("dt", {}, t("Model")), h("dd", {}, run.model),
        h("dt", {}, t("Tokens")), h("dd", {}, tokens(run)),
        run.note && [h("dt", {}, t("Note")), h("dd", {}, said(run.note))]),
      h("h2", {}, t("Request")), h("pre", {}, run.message),
      run.result && [h("h2", {}, t("Answer")), h("div", { class: "answer" }, markdown(run.result))],
      h("details", { "data-key": "transcript" }, h("summary", {}, t("Transcript")),
        whole.cut && h("p", { class: "hint" }, t("The beginning is left out: the run is very long.")),
        whole.messages.length ? whole.messages.map((each) => h("div", { class: "said" },
          h("strong", {}, each.role), each.content && h("pre", {}, each.content),
          each.calls.map((call) => h("pre", { class: "tool" }, `${call.name} ${call.arguments}`))))
          : h("p", { class: "hint" }, t("Nothing was said in this run."))),
    ];
  }
}

// -- values of the form --

const FIELDS = { injectInto: "inject_into", model: "model", maxTokens: "max_tokens", dailyTokens: "daily_tokens" };
const TIMES = ["cron", "every", "at", "zone"];
const ORDER = ["name", "message", ...TIMES, "injectInto", "model", "timeout", "maxTokens", "dailyTokens"];
const FORM = {
  now: null, enabled: null, message: { rows: 4 }, at: { type: "datetime-local" }, zone: { list: "zones" }, injectInto: { list: "chats" },
  maxTokens: { inputMode: "numeric" }, dailyTokens: { inputMode: "numeric" },
};
const shownFor = (kind) => (kind === "every" ? ["every"] : [kind, "zone"]);
const OWN_ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;

/** What the form shows of a task as it is stored, or of a new one. */
function valuesOf(task) {
  const values = { name: "", message: "", kind: "cron", cron: "0 9 * * *", every: "", at: "", zone: OWN_ZONE, timeout: "" };
  for (const name of Object.keys(FIELDS)) values[name] = "";
  if (!task) return values;
  const { kind, expression, zone, seconds, instant, shown } = task.trigger;
  if (kind === "cron") Object.assign(values, { cron: expression, zone });
  else values.cron = "";
  if (kind === "every") values.every = shown.replace("every ", "") || String(seconds);
  if (kind === "at") values.at = localMinute(new Date(instant));
  for (const [name, stored] of Object.entries(FIELDS)) values[name] = String(task[stored] ?? "");
  return { ...values, kind, message: task.message, timeout: task.timeout_s === null ? "" : `${task.timeout_s}s` };
}

function localMinute(time) {
  return new Date(time - time.getTimezoneOffset() * 60000).toISOString().slice(0, 16);
}

/** The fields that are given, without those of the other kinds of times. */
function given({ kind, ...values }) {
  const hidden = TIMES.filter((name) => !shownFor(kind).includes(name));
  return Object.fromEntries(Object.entries(values).filter(([name, value]) => value && !hidden.includes(name)));
}

async function change(task, before, values) {
  const now = given(values), old = given(before), when = shownFor(values.kind);
  const isMoved = values.kind !== before.kind || when.some((name) => values[name] !== before[name]);
  const body = Object.fromEntries(Object.entries(now).filter(([name, value]) => (when.includes(name) ? isMoved : value !== old[name])));
  const clear = ["timeout", ...Object.keys(FIELDS)].filter((name) => old[name] && !now[name]);
  if (clear.length) body.clear = clear;
  if (!values.message.trim()) body.message = " ";
  if (isMoved && !now[values.kind]) body[values.kind] = " ";
  if (Object.keys(body).length) await patch(`/schedule/${encodeURIComponent(task.name)}`, body);
}

/** Show the next times that the form means, or what is wrong with them at its field. */
async function previewTimes(form, times) {
  const values = given(Object.fromEntries(new FormData(form)));
  const kind = form.elements.kind.value, asked = JSON.stringify(values);
  times.dataset.asked = asked;
  let answer = null, problem = null;
  try {
    if (values[kind]) answer = await get("/schedule/preview", { [kind]: values[kind], zone: values.zone });
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    problem = error;
  }
  if (times.dataset.asked !== asked) return;
  for (const name of TIMES) {
    const input = form.elements.namedItem(name), wrong = problem && problem.fields.find((each) => each.field === name);
    input.toggleAttribute("aria-invalid", Boolean(wrong));
    input.parentElement.querySelector(".error").textContent = wrong ? wrong.message : "";
  }
  times.replaceChildren(...(answer ? answer.next_fires : []).map((each) => h("li", {}, moment(each, answer.zone))));
}

customElements.define("klaw-tasks", Tasks);
