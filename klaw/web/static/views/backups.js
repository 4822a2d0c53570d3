// Backups: making one, downloading it, and how to restore it.

import { get, post } from "/static/api.js";
import { h } from "/static/dom.js";
import { said, size, t, when } from "/static/i18n.js";
import { Panel } from "/static/panel.js";

class Backups extends Panel {
  load() {
    return get("/backup");
  }

  draw({ folder, backups, making: { state, error } }) {
    const busy = state === "running";
    if (busy) this.again();
    return [
      h("header.row", h("h1", t("Backups")), h("button.main", { "data-key": "make", disabled: busy, onclick: () => this.change(() => post("/backup")) }, t(busy ? "Making a backup …" : "Back up now"))),
      error && h("p.error", { role: "alert" }, said(error)),
      h("p", t("They are in {folder}. Access keys and secrets.env are not in them.", { folder })),
      backups.length ? h("ul.lines", backups.reverse().map((each) => h("li.row", h("span", h("strong", each.time ? when(each.time) : each.name), h("div.hint", aboutBackup(each))),
        each.time && h("a.button", { href: `/api/v1/backup/${each.name}/archive`, download: "", "aria-label": `${t("Download")}: ${each.name}` }, t("Download"))))) : h("p", t("No backups yet.")),
      h("h2", t("Restore")), h("p", t("On a machine where Klaw is stopped and its home is empty, unpack the download (tar xf) and run there:")),
      h("pre", { tabIndex: 0 }, h("code", "klaw backup restore --from .")),
    ];
  }
}

function aboutBackup({ problem, bytes, new_bytes: own, left_out: out, holds_forgotten: forgotten }) {
  if (problem) return said(problem);
  return [`${size(bytes)} (${t("of its own")}: ${size(own)})`, out.length && `${t("Left out")}: ${out.length}`, forgotten && t("still holds something forgotten")].filter(Boolean).join(" · ");
}

customElements.define("klaw-backups", Backups);
