import { formDialog, h, menu, picked, post, size, status, t, toast, upload as sent } from "../../forms.js";

const pathOf = (base) => `/kb/${encodeURIComponent(base)}`;

export function addMenu(view, base) {
  const asked = (kind, text, hint) => () =>
    formDialog(text, [{ name: "what", label: t(text), hint, maxLength: 2000 }], async ({ what }) => {
      await post(`${pathOf(base)}/sources`, { what, kind });
      view.refresh();
    }, { deed: "Add" });
  return h("div.row", picked("Add files", (files) => upload(view, base, files), { multiple: true }),
    menu(t("Add something else"), [
      ["Web page", asked("web", "Address of the page")],
      ["Folder", asked("folder", "Folder of the server", t("below one of kb.folders, or in your workspace"))],
      ["SPARQL endpoint", asked("sparql", "Address of the endpoint", t("or its name in kb.endpoints"))],
    ]));
}

export async function upload(view, base, files) {
  for (const file of files) {
    const { name } = file, bar = h("progress", { max: file.size || 1, value: 0, "aria-label": name });
    const told = status(`${name} (${size(file.size)}) `, bar);
    document.querySelector(".drop")?.append(told);
    const path = `${pathOf(base)}/files?${new URLSearchParams({ name })}`;
    await sent(path, file, (done) => { bar.value = done; })
      .catch((error) => toast(`${name}: ${error.message}`, 15000));
    told.remove();
    await view.refresh();
  }
}
