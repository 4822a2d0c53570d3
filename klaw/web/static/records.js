// Forms and lines of what people keep, made from what the server says of its operations (/api/openapi.json).

import { form, openDialog } from "/static/forms.js";
import { t, when } from "/static/i18n.js";

const LONG = 200; // characters: what may have more gets several lines
let loading;

/** The description of the API; it is asked for once. */
function described() {
  loading ??= fetch("/api/openapi.json").then((response) => response.json()).catch((error) => {
    loading = null;
    throw error;
  });
  return loading;
}

/** The schema of what an operation is told. */
async function schemaOf(name) {
  const operations = Object.values((await described()).paths).flatMap((each) => Object.values(each));
  return operations.find((each) => each.operationId === name).requestBody.content["application/json"].schema;
}

/**
 * The fields of what an operation is told, for `form`. `values` are those that there are now; `own` has what is different
 * for single fields by their names, null for one that is not asked for.
 */
export async function fieldsOf(name, values = {}, own = {}) {
  const { properties, required = [] } = await schemaOf(name);
  return Object.entries(properties).filter(([key]) => own[key] !== null).map(([key, { title, description, ...of }]) => ({
    name: key, label: t(title), hint: t(description), autocomplete: "off", "data-needed": required.includes(key), ...inputOf(of, values[key] ?? of.default ?? ""), ...own[key],
  }));
}

/**
 * Ask for what an operation is told, in a dialog. `send` gets what was given; a function that it returns is called when
 * the dialog is closed. `own`: see `fieldsOf`; all else: see `form`.
 */
export const askFor = (title, name, values, send, { own, ...how } = {}) => openDialog(title, async (dialog) => {
  const fields = await fieldsOf(name, values, own), needed = new Set(fields.filter((each) => each["data-needed"]).map((each) => each.name));
  dialog.show(form(fields, async (given) => {
    const said = Object.entries(given).filter(([key, value]) => how.edits || needed.has(key) || (value !== "" && value !== null));
    const then = await send(Object.fromEntries(said));
    dialog.close();
    then?.();
  }, how));
});

function inputOf({ type, minimum, maximum, maxLength, examples, enum: values }, value) {
  const kind = [type].flat()[0], offered = values || examples;
  if (kind === "array") return { value: value ? value.join(", ") : "", hint: t("separated by commas") };
  if (kind === "boolean") return { value: Boolean(value) };
  if (kind === "integer") return { value, type: "number", min: minimum, max: maximum };
  if (offered) return { value, choices: [...new Set([...offered, ...(value ? [value] : [])])].map((each) => [each, t(each)]) };
  return { value, ...(maxLength > LONG && { rows: 3 }) };
}

/**
 * What there is to tell of one beside its text, in a line. `kind` is the name of its schema; `own` has a function for
 * single fields that makes the words, null for one that is told elsewhere.
 */
export async function lineOf(kind, own = {}) {
  const { properties } = (await described()).components.schemas[kind];
  const told = Object.entries(properties).filter(([key, { title }]) => title && own[key] !== null);
  return (row) => told.map(([key, { title }]) => {
    const value = row[key];
    if (value === null || value === "" || value?.length === 0) return null;
    if (own[key]) return own[key](value, row);
    if (key.endsWith("_at")) return `${t(title)} ${when(value)}`;
    return `${t(title)} ${Array.isArray(value) ? value.join(", ") : typeof value === "string" ? t(value) : value}`;
  }).filter(Boolean).join(" · ");
}
