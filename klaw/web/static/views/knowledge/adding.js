// Adding sources to a base: files that are picked or dropped, folders, web pages, graphs.

import { formDialog, h, menu, post, size, t, toast, upload as sent } from "../../forms.js";

export function addMenu(view, base) {
  const picker = h("input", { type: "file", multiple: true, hidden: true, onchange: () => {
    upload(view, base, picker.files);
    picker.value = "";
  } });
  const asked = (kind, label, hint) => () => formDialog(label, [{ name: "what", label, hint, maxLength: 2000 }], async ({ what }) => {
    await post(`/kb/${encodeURIComponent(base)}/sources`, { what, kind });
    view.refresh();
  }, { button: t("Add") });
  return h("div.row", picker, h("button.main", { "data-key": "files", onclick: () => picker.click() }, t("Add files")), menu(t("Add something else"), [
    [t("Web page"), asked("web", t("Address of the page"))],
    [t("Folder"), asked("folder", t("Folder of the server"), t("below one of kb.folders, or in your workspace"))],
    [t("SPARQL endpoint"), asked("sparql", t("Address of the endpoint"), t("or its name in kb.endpoints"))],
  ]));
}

/** Upload files one after the other; each is a source. */
export async function upload(view, base, files) {
  for (const file of [...files]) {
    const bar = h("progress", { max: file.size || 1, value: 0, "aria-label": file.name });
    const told = h("p.hint", { role: "status" }, `${file.name} (${size(file.size)}) `, bar);
    document.querySelector(".drop")?.append(told);
    await sent(`/kb/${encodeURIComponent(base)}/files?${new URLSearchParams({ name: file.name })}`, file, (done) => { bar.value = done; })
      .catch((error) => toast(`${file.name}: ${error.message}`, 15000));
    told.remove();
    await view.refresh();
  }
}
