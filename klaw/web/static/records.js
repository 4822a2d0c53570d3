// Forms and lines made from what the server says of its operations (/api/openapi.json).

import { formDialog, inLine, t, when } from "./forms.js";

let loading;

function described() {
	loading ??= fetch("api/openapi.json").then((response) => response.json()).catch((error) => {
		loading = null;
		throw error;
	});
	return loading;
}

/** What an operation is told. `values` are those of now, `own` what is different; null is not asked for. */
export async function fieldsOf(name, values = {}, own = {}) {
	const operations = Object.values((await described()).paths).flatMap((each) => Object.values(each));
	const { requestBody } = operations.find((each) => each.operationId === name);
	const { properties, required = [] } = requestBody.content["application/json"].schema;
	const asked = Object.entries(properties).filter(([key]) => own[key] !== null);
	return asked.map(([key, { title, description, ...of }]) => ({
		name: key, label: t(title), hint: t(description), autocomplete: "off", required: required.includes(key),
		...inputOf(of, values[key] ?? of.default ?? ""), ...own[key],
	}));
}

export function askFor(title, name, values, send, { own, ...how } = {}) {
	const fields = fieldsOf(name, values, own);
	formDialog(title, fields, async (given) => {
		const needed = (await fields).filter((each) => each.required).map((each) => each.name);
		const isGiven = ([key, value]) => how.edits || needed.includes(key) || value !== "";
		return send(Object.fromEntries(Object.entries(given).filter(isGiven)));
	}, how);
}

function inputOf({ type, minimum: min, maximum: max, maxLength, examples, enum: values }, value) {
	const kind = [type].flat()[0], offered = values || examples;
	if (kind === "array") return { value: value ? value.join(", ") : "", hint: t("separated by commas") };
	if (kind === "boolean") return { value: Boolean(value) };
	if (kind === "integer") return { value, type: "number", min, max };
	if (!offered) return { value, rows: maxLength > 200 && 3 };
	return { value, choices: [...new Set([...offered, ...(value ? [value] : [])])].map((each) => [each, t(each)]) };
}

/** A function that tells of a row in a line. `own` has functions for single fields, null for what is told elsewhere. */
export async function lineOf(kind, own = {}) {
	const { properties } = (await described()).components.schemas[kind];
	const told = Object.entries(properties).filter(([key, { title }]) => title && own[key] !== null);
	return (row) => inLine(told.map(([key, { title }]) => {
		const value = row[key];
		if ((value ?? "") === "" || value.length === 0) return null;
		if (own[key]) return own[key](value);
		const isTime = key.endsWith("_at"), text = Array.isArray(value) ? value.join(", ") : value;
		return `${t(title)} ${isTime ? when(value) : typeof text === "string" ? t(text) : text}`;
	}));
}
