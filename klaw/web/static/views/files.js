// Files of messages: picked, pasted or dropped, uploaded at once and sent with the next message; and how those of a
// stored message are shown.

import { app, h, iconButton, said, size, t, toast, upload } from "../page.js";
import { filesOf, keepFiles } from "../socket.js";

const AGAIN = [0, 429, 503];
const PHOTO_BYTES = 3500000, PHOTO_SIDE = 2048;

class Files extends HTMLElement {
  chat = "";
  field = null;
  chips = new Map();

  connectedCallback() {
    Object.assign(this, { role: "group", ariaLabel: t("Files") });
    this.picker = h("input", { type: "file", multiple: true, hidden: true, onchange: () => {
      this.take(this.picker.files);
      this.picker.value = "";
    } });
    this.button = iconButton("attach", t("Attach a file"), () => this.picker.click());
    this.replaceChildren(this.picker);
    filesOf(this.chat).forEach((file) => this.keep(file));
    this.changed();
  }

  listen(element) {
    for (const kind of ["paste", "drop", "dragover"]) element.addEventListener(kind, (event) => {
      const carried = event.clipboardData || event.dataTransfer;
      if (!carried?.types.includes("Files")) return;
      event.preventDefault();
      if (kind !== "dragover") this.take(carried.files);
    });
  }

  get named() {
    return this.kept.map(({ sha256, name, transcribed }) => ({ sha256, name, transcribed }));
  }

  get kept() {
    return [...this.chips.values()].filter((each) => each.file).map((each) => each.file);
  }

  get busy() {
    return [...this.chips.values()].some((each) => !each.file || each.hearing);
  }

  clear() {
    this.chips.forEach((_, key) => key.remove());
    this.chips.clear();
    this.changed();
  }

  async take(files) {
    for (const given of [...files]) this.attach(await scaled(given));
  }

  attach(file, done) {
    const refused = this.refusal(file);
    if (refused) toast(`${file.name}: ${refused}`);
    else this.upload(file, this.show(file.name, file.size), done);
  }

  refusal(file) {
    const { max_files, max_file_bytes, max_message_file_bytes } = app.socket.limits;
    const all = [...this.chips.values()].reduce((sum, each) => sum + each.bytes, file.size);
    if (!file.size) return t("The file is empty.");
    if (this.chips.size >= max_files) return `${t("At most this many files go with a message:")} ${max_files}`;
    if (file.size > max_file_bytes) return `${t("A file may be at most this large:")} ${size(max_file_bytes)}`;
    if (all > max_message_file_bytes) return `${t("The files of a message may be at most this large together:")} ${size(max_message_file_bytes)}`;
    return "";
  }

  keep(file) {
    const told = this.show(file.name, file.bytes || 0);
    told.file = file;
    this.settle(told);
  }

  settle(told) {
    const { chip, file } = told;
    if (file.type?.startsWith("image/")) chip.prepend(h("img", { alt: "", src: `/api/v1/files/${file.sha256}` }));
    if (file.reading) chip.append(h("small.reading", said(file.reading)));
    this.changed();
    this.hear?.(told);
  }

  show(name, bytes) {
    const told = { bytes, file: null, gone: new AbortController(), progress: h("progress", { max: bytes, value: 0, "aria-label": name }) };
    told.chip = h("span.chip", h("span.name", name), " ", bytes > 0 && h("small", size(bytes)), told.progress,
      iconButton("close", `${t("Remove the file")} ${name}`, () => {
        this.drop(told);
        told.gone.abort();
        clearTimeout(told.timer);
        this.changed();
        this.field?.focus();
      }));
    this.chips.set(told.chip, told);
    this.append(told.chip);
    return told;
  }

  async upload(file, told, done) {
    try {
      const { file: kept, reading } = await upload(`/files?name=${encodeURIComponent(file.name)}`, file, (bytes) => { told.progress.value = bytes; }, told.gone.signal);
      told.file = { ...kept, reading };
    } catch (error) {
      if (!this.chips.has(told.chip)) return;
      if (AGAIN.includes(error.status)) told.timer = setTimeout(() => this.isConnected && this.upload(file, told, done), (error.after || 2) * 1000);
      else {
        toast(`${file.name}: ${error.message}`);
        this.drop(told);
      }
    }
    if (!this.chips.has(told.chip)) return;
    if (!told.file) return this.changed();
    this.settle(told);
    done?.();
  }

  drop({ chip }) {
    chip.remove();
    this.chips.delete(chip);
  }

  changed() {
    this.chips.forEach((told) => { told.progress.hidden = Boolean(told.file); });
    this.hidden = !this.chips.size;
    keepFiles(this.chat, this.kept);
  }
}

/** A photo that is larger than models take is made smaller; everything else stays as it is. */
async function scaled(file) {
  if (file.size <= PHOTO_BYTES || !["image/jpeg", "image/png", "image/webp"].includes(file.type)) return file;
  try {
    const picture = await createImageBitmap(file);
    const scale = Math.min(1, PHOTO_SIDE / Math.max(picture.width, picture.height));
    const canvas = h("canvas", { width: Math.round(picture.width * scale), height: Math.round(picture.height * scale) });
    canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
    const blob = await new Promise((resolve) => canvas.toBlob(resolve, "image/jpeg", 0.85));
    return blob.size < file.size ? new File([blob], file.name.replace(/\.\w+$/, "") + ".jpg", { type: blob.type }) : file;
  } catch {
    return file;
  }
}

export function shownFiles(files) {
  return h("div.files", files.map(({ sha256, name, type, bytes }) => {
    const href = `/api/v1/files/${sha256}?name=${encodeURIComponent(name)}`;
    if (type?.startsWith("image/")) return h("a", { href, target: "_blank" }, h("img", { loading: "lazy", alt: name, src: href }));
    if (type?.startsWith("audio/")) return h("audio", { controls: true, preload: "none", title: name, src: href });
    return h("a", { href, download: name, class: "chip" }, h("span.name", name), " ", bytes && h("small", size(bytes)));
  }));
}

customElements.define("klaw-files", Files);
