// Calls of tools: a line for each, with arguments and result below it.

import { h, parsed, t } from "../page.js";

const find = (place, id) => place.querySelector(`.call[data-call="${CSS.escape(id)}"]`);
const pre = (text, given) => h("pre", { tabIndex: 0, dir: "auto", ...given }, text);

function line({ id, name, title, about, arguments: given = "" }) {
  return h("details.fold.call", { "data-call": id },
    h("summary", title ? t(title) : name, about && `: ${about}`, h("span.how")), pre(readable(given)));
}

const readable = (text) => (parsed(text) === text ? text : JSON.stringify(parsed(text), null, 2));

function mark(made, state) {
  made.dataset.state = state;
  const words = { started: "in progress", done: "finished", failed: "did not work" }[state];
  made.querySelector(".how").textContent = ` · ${t(words)}`;
}

export function used(body, { call, state }) {
  const made = find(body, call);
  if (made) mark(made, state);
}

/** Each call stands once, with its result, in whichever order they come. */
export function fill(body, row, { kind, calls = [{}], content }) {
  const results = [...body.querySelectorAll(".tool_result")];
  if (kind === "tool_call") {
    for (const call of calls) {
      const made = line(call), result = results.find((each) => each.dataset.call === call.id);
      row.append(made);
      if (result) join(made, result);
    }
    return;
  }
  const [{ id, name, failed }] = calls, made = find(body, id);
  Object.assign(row.dataset, { call: id, state: failed ? "failed" : "done" });
  row.append(h("details.fold", h("summary", `${t("result")} ${name}`), pre(content)));
  if (made) join(made, row);
}

function join(made, result) {
  const { textContent } = result.querySelector("pre");
  if (!made.querySelector(".result")) made.append(pre(textContent, { className: "result" }));
  mark(made, result.dataset.state);
  result.hidden = true;
}
