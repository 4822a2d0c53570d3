// Backups: making one, downloading it, and how to restore it.

import { get, h, inLine, post, said, size, t, when } from "../page.js";
import { Panel } from "../panel.js";

class Backups extends Panel {
  load = () => get("/backup");

  draw({ folder, backups, making: { state, error } }) {
    const busy = state === "running";
    if (busy) this.again();
    return [
      h("header.row", h("h1", t("Backups")), h("button.main", { "data-key": "make", disabled: busy, onclick: () => this.change(() => post("/backup")) }, t(busy ? "Making a backup …" : "Back up now"))),
      error && h("p.error", { role: "alert" }, said(error)),
      h("p", t("They are in {folder}. Access keys and secrets.env are not in them.", { folder })),
      backups.length ? h("ul.lines", backups.reverse().map(row)) : h("p", t("No backups yet.")),
      h("h2", t("Restore")), h("p", t("On a machine where Klaw is stopped and its home is empty, unpack the download (tar xf) and run there:")),
      h("pre", { tabIndex: 0 }, h("code", "klaw backup restore --from .")),
    ];
  }
}

function row({ name, time, problem, bytes, left_out: out, holds_forgotten: forgotten }) {
  const about = problem ? said(problem) : inLine(size(bytes), out.length && `${t("Left out")}: ${out.length}`, forgotten && t("still holds something forgotten"));
  return h("li.row", h("span", h("strong", time ? when(time) : name), h("div.hint", about)),
    time && h("a.button", { href: `/api/v1/backup/${name}/archive`, download: "", "aria-label": `${t("Download")}: ${name}` }, t("Download")));
}

customElements.define("klaw-backups", Backups);
