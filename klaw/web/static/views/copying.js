// Copying, also without a secure context, which a plain address of a home network is not.

import { h, t, toast } from "../page.js";

export async function copy(text) {
	try {
		await navigator.clipboard.writeText(text);
	} catch {
		const field = h("textarea.unseen", { value: text }), place = document.activeElement;
		document.body.append(field);
		field.select();
		const copied = document.execCommand("copy");
		field.remove();
		place?.focus({ preventScroll: true });
		if (!copied) return toast(t("The browser does not allow copying."));
	}
	toast(t("Copied."), 1500);
}

export function copyBlock(block) {
	const table = block.querySelector("table");
	const cellText = (cell) => cell.innerText.replace(/\s+/g, " ").trim();
	copy(table ? [...table.rows].map((row) => [...row.cells].map(cellText).join("\t")).join("\n")
		: block.querySelector("pre").innerText.trimEnd());
}
