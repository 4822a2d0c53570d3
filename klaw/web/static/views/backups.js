import { Panel, failure, get, h, heading, inLine, list, mainButton, post, row, said, size, t, when } from "../panel.js";

const RESTORE =
	"On a machine where Klaw is stopped and its home is empty, unpack the download (tar xf) and run there:";

export default class extends Panel {
	every = 1500;
	load = () => get("/backup");

	draw({ folder, backups, making: { state, error } }) {
		const disabled = state === "running", make = () => this.change(() => post("/backup"));
		return [
			heading("Backups", mainButton(disabled ? "Making a backup …" : "Back up now", make, { disabled })),
			error && failure(said(error)),
			h("p", t("They are in {folder}. Access keys and secrets.env are not in them.", { folder })),
			list("lines", backups.reverse().map(backup), "No backups yet."),
			h("h2", t("Restore")),
			h("p", t(RESTORE)),
			h("pre", { tabIndex: 0 }, h("code", "klaw backup restore --from .")),
		];
	}
}

function backup({ name, time, problem, bytes, left_out: out, holds_forgotten: forgotten }) {
	const about = problem ? said(problem) : inLine(size(bytes), out.length && t("Left out", out.length),
		forgotten && t("still holds something forgotten"));
	const download = { href: `api/v1/backup/${name}/archive`, download: "", ariaLabel: t("Download", name) };
	return row(time ? when(time) : name, about, time && h("a.button", download, t("Download")));
}
