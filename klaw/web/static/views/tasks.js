import {
	Panel, app, backTo, button, date, form, formDialog, get, h, heading, inLine, list, mainButton, markdown, number,
	openDialog, patch, post, remove, said, settled, t, table, term, toast, when,
} from "../panel.js";
import { fieldsOf } from "../records.js";
import { done, showHistory } from "./memory.js";

const moment = (iso, timeZone) => date(iso, {
	weekday: "short", day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit",
	timeZoneName: "short", timeZone,
});
const status = (run) => t(run.status === "waiting" ? "queued" : run.status.replace("_", " "));
const path = (...names) => `#/tasks/${names.map(encodeURIComponent).join("/")}`;
const urlOf = (name) => `/schedule/${encodeURIComponent(name)}`;
const tokens = (run) => number(run.prompt_tokens + run.completion_tokens);

export default class extends Panel {
	every = 3000;

	async load() {
		const [task, run] = this.where;
		if (run) {
			const asked = ["", "/transcript"].map((more) => get(`/runs/${encodeURIComponent(run)}${more}`));
			const [shown, whole] = await Promise.all(asked);
			return { run: shown.run, whole };
		}
		return task ? get("/runs", { task: task === "*" ? null : task, limit: this.limit }) : get("/schedule");
	}

	go(where) {
		this.limit = 20;
		super.go(where);
	}

	draw(data) {
		return data.run ? this.drawRun(data) : data.runs ? this.drawRuns(data) : this.drawTasks(data);
	}

	drawTasks({ tasks }) {
		return [
			heading("Tasks", mainButton("Remind me", () => remind("", null, this)),
				button("New task", () => edit(tasks, this)),
				h("button.quiet.zone", () => this.askZone(), app.me.zone || t("Time zone")),
				h("a", { href: path("*") }, t("All runs"))),
			list("cards", tasks.map((task) => this.card(task)),
				"No tasks yet. Schedule a reminder or a question, once or repeating."),
		];
	}

	card(task) {
		const { name, enabled, running, next_fires: [next], last_run: last, trigger, inject_into: chat, warning } = task;
		const url = urlOf(name), again = () => this.refresh();
		const soon = enabled && !running && next ? moment(next, task.zone)
			: t(!enabled ? "switched off" : running ? "running now" : "never");
		const act = (text, work) => button(text, work, { of: name });
		const told = ({ task: each }) => each
			&& inLine(each.trigger.shown, !each.enabled && t("switched off"), each.inject_into, each.message);
		const removed = async () => {
			await remove(url);
			done("Removed.", () => post(`${url}/undo`), location.hash, again);
		};
		return h("li", { "data-task": name },
			h("h2", h("a", { href: path(name) }, name), " ",
				trigger.repeat ? t(trigger.repeat) : trigger.kind !== "at" && h("code", trigger.shown)),
			h("p.clamp", task.message),
			h("dl", term("Next", soon), chat && term("Post results to", chat),
				last && term("Last run", h("a", { href: path(name, last.id) }, `${status(last)}, ${when(last.started_at)}`))),
			warning && h("p.warn", said(warning)),
			h("div.buttons",
				act("Run now", () => this.change(() => post(`${url}/run`))),
				act("Edit", () => edit([], this, task)),
				act(enabled ? "Switch off" : "Switch on",
					() => this.change(() => post(`${url}/${enabled ? "disable" : "enable"}`))),
				act("History", () => showHistory(url, told, again)),
				act("Remove", () => this.change(removed))));
	}

	askZone() {
		const field = { name: "zone", label: t("Time zone"), value: app.me.zone || "", autocomplete: "off" };
		formDialog("Time zone", [field], async (given) => {
			app.me.zone = (await post("/zone/set", given)).zone;
			this.go(this.where);
		});
	}

	drawRuns({ task, runs, next }) {
		const row = (run) => h("tr",
			h("td", h("a", { href: path(run.task, run.id) }, when(run.started_at))),
			h("td", run.task), h("td", status(run)), h("td.number", tokens(run)), h("td", said(run.note || run.error || "")));
		const head = ["Started", "Task", "Status", "Tokens", "Note"];
		return [
			h("header.row", backTo("#/tasks", "Tasks"), h("h1", task ? t("Runs", task) : t("All runs"))),
			runs.length ? table(head, runs.map(row)) : h("p.none", t("No runs yet.")),
			next && this.limit < 100 && button("More", () => { this.limit = 100; this.refresh(); }),
		];
	}

	drawRun({ run, whole: { cut, messages } }) {
		const goesOn = ["running", "waiting"].includes(run.status);
		return [
			h("header.row", backTo(path(run.task), "Runs"), h("h1", run.task),
				goesOn && button("Cancel run", () => this.change(() => post("/runs/cancel", { run: run.id })))),
			h("dl",
				term("Status", status(run), run.error && ` (${said(run.error)})`), term("Started", when(run.started_at)),
				term("Model", run.model), term("Tokens", tokens(run)), run.note && term("Note", said(run.note))),
			h("h2", t("Request")), h("pre", run.message),
			run.result && [h("h2", t("Answer")), h("div.answer", markdown(run.result))],
			h("details", h("summary", t("Transcript")),
				cut && h("p.hint", t("The beginning is left out: the run is very long.")),
				messages.map(({ role, content, calls }) => h("div.said", h("strong", role), content && h("pre", content),
					calls.map((call) => h("pre.tool", `${call.name} ${call.arguments}`)))),
				!messages.length && h("p.hint", t("Nothing was said in this run."))),
		];
	}
}

const OWN = { message: { rows: 3, hint: "" }, injectInto: { list: "chats" } };
const SHOWN = ["message", "when"], MORE = ["name", "model", "timeout", "maxTokens", "dailyTokens"];
const REPEATS = ["", "every day", "on weekdays", "on weekends", "every week", "every month", "every year"];

export const remind = (text, chat, view) => edit([], view, null, { message: text, injectInto: chat || "" });

const titleOf = (task, given) => (task ? `${t("Task")} ${task.name}` : t(given ? "Remind me" : "New task"));

const edit = (tasks, view, task, given) => openDialog(titleOf(task, given), async (dialog) => {
	const before = valuesOf(tasks, task, given);
	const [{ chats }, all] = await Promise.all([get("/chats", { limit: 100 }), fieldsOf("schedule_add", before, OWN)]);
	const fields = (names) => names.map((name) => all.find((each) => each.name === name));
	const choices = REPEATS.map((each) => [each, t(each || "no")]);
	const repeat = { name: "repeat", label: t("Repeat"), value: before.repeat, choices };
	const more = h("details", { hidden: Boolean(given || task?.reminder) }, h("summary", t("More")));
	const folded = MORE.filter((name) => name !== "name" || !task);
	const made = form([...fields(SHOWN), repeat, ...fields(["injectInto", ...folded])], async (values) => {
		const asked = { ...values, when: whenOf(values) || " " };
		delete asked.repeat;
		let told = "";
		try {
			if (task) await change(task, before, asked);
			else if (given) {
				const { message: text, when: time, injectInto } = asked;
				({ told } = await post("/remind", { text: text || " ", when: time, chat: injectInto || null }));
			} else await post("/schedule", Object.fromEntries(Object.entries(asked).filter(([, value]) => value)));
		} catch (error) {
			more.open ||= error.fields?.some(({ field }) => MORE.includes(field));
			throw error;
		}
		dialog.close();
		if (told) toast(told, 10000);
		await view?.refresh();
	});
	const times = h("ol.times", { ariaLive: "polite", ariaLabel: t("Next times") });
	const [, , repeats, last, ...rest] = made.querySelectorAll(".field");
	repeats.after(times);
	more.append(...rest);
	last.after(more);
	dialog.show(made, h("datalist", { id: "chats" }, chats.map(({ name }) => h("option", { value: name }))));
	previewTimes(made, times);
	made.elements[given?.message ? "when" : "message"].focus();
	const previewSoon = settled(250, () => previewTimes(made, times));
	made.addEventListener("input", ({ target }) => ["when", "repeat"].includes(target.name) && previewSoon());
});

function valuesOf(tasks, task, given) {
	let free = 1;
	while (tasks.some(({ name }) => name === `task-${free}`)) free += 1;
	const values = { name: `task-${free}`, message: "", when: "", repeat: "", timeout: "", injectInto: "", ...given };
	if (!task) return values;
	const text = (value) => String(value ?? ""), { message, timeout_s: seconds } = task;
	const { repeat, shown, kind } = task.trigger, [next] = task.next_fires;
	const isPlain = next && (kind === "at" || REPEATS.includes(repeat));
	return {
		message, timeout: seconds === null ? "" : `${seconds}s`, injectInto: text(task.inject_into),
		model: text(task.model), maxTokens: text(task.max_tokens), dailyTokens: text(task.daily_tokens),
		when: isPlain ? next.slice(0, 16).replace("T", " ") : shown, repeat: (isPlain && repeat) || "",
	};
}

const whenOf = ({ when: time, repeat }) => (time && repeat ? `${repeat} ${time}` : time);

async function change(task, before, values) {
	const was = { ...before, when: whenOf(before) };
	const changed = Object.entries(values).filter(([name, value]) => value !== (was[name] || ""));
	if (changed.length) await patch(urlOf(task.name), Object.fromEntries(changed));
}

async function previewTimes({ elements: { when: field, repeat } }, times) {
	const asked = whenOf({ when: field.value.trim(), repeat: repeat.value });
	times.dataset.asked = asked;
	let answer = { next_fires: [] }, problem = "";
	try {
		if (asked) answer = await get("/schedule/preview", { when: asked });
	} catch (error) {
		problem = error.fields[0]?.message || error.message;
	}
	if (times.dataset.asked !== asked) return;
	field.toggleAttribute("aria-invalid", Boolean(problem));
	field.parentElement.querySelector(".error").textContent = problem;
	times.replaceChildren(...answer.next_fires.slice(0, 3).map((each) => h("li", moment(each, answer.zone))));
}
