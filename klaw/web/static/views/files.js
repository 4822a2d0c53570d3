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
		const picker = h("input", { type: "file", multiple: true, hidden: true, onchange: () => {
			this.take([...picker.files]);
			picker.value = "";
		} });
		this.button = iconButton("attach", "Attach a file", () => picker.click());
		this.replaceChildren(picker);
		filesOf(this.chat).forEach((file) => this.keep(file));
		this.changed();
	}

	listen(element) {
		for (const kind of ["paste", "drop", "dragover"]) element.addEventListener(kind, (event) => {
			const carried = event.clipboardData || event.dataTransfer;
			if (!carried?.types.includes("Files")) return;
			event.preventDefault();
			if (kind !== "dragover") this.take([...carried.files]);
		});
	}

	get named() {
		return this.kept.map(({ sha256, name, transcribed }) => ({ sha256, name, transcribed }));
	}

	get kept() {
		return [...this.chips.values()].map((each) => each.file).filter(Boolean);
	}

	get busy() {
		return [...this.chips.values()].some((each) => !each.file || each.hearing);
	}

	clear() {
		[...this.chips.values()].forEach((each) => this.drop(each));
	}

	async take(files) {
		for (const given of files) this.attach(await scaled(given));
	}

	attach(file, done) {
		const refused = this.refusal(file);
		if (refused) toast(`${file.name}: ${refused}`);
		else this.upload(file, this.show(file.name, file.size), done);
	}

	refusal(file) {
		const { max_files: count, max_file_bytes: each, max_message_file_bytes: together } = app.socket.limits;
		const all = [...this.chips.values()].reduce((sum, { bytes }) => sum + bytes, file.size);
		if (!file.size) return t("The file is empty.");
		if (this.chips.size >= count) return `${t("At most this many files go with a message:")} ${count}`;
		if (file.size > each) return `${t("A file may be at most this large:")} ${size(each)}`;
		return all > together && `${t("The files of a message may be at most this large together:")} ${size(together)}`;
	}

	keep(file) {
		this.settle(this.show(file.name, file.bytes || 0), file);
	}

	show(name, bytes) {
		const progress = h("progress", { max: bytes, value: 0, ariaLabel: name });
		const told = { bytes, file: null, gone: new AbortController(), progress };
		told.chip = h("span.chip", h("span.name", name), " ", bytes > 0 && h("small", size(bytes)), progress,
			iconButton("close", `${t("Remove the file")} ${name}`, () => {
				told.gone.abort();
				clearTimeout(told.timer);
				this.drop(told);
				this.field?.focus();
			}));
		this.chips.set(told.chip, told);
		this.append(told.chip);
		this.changed();
		return told;
	}

	async upload(file, told, done) {
		const { chip, gone, progress } = told, { name } = file, isThere = () => this.chips.has(chip);
		try {
			const path = `/files?name=${encodeURIComponent(name)}`, tell = (bytes) => { progress.value = bytes; };
			const { file: kept, reading } = await upload(path, file, tell, gone.signal);
			if (!isThere()) return;
			this.settle(told, { ...kept, reading });
			done?.();
		} catch (error) {
			if (!isThere()) return;
			const again = () => this.isConnected && this.upload(file, told, done);
			if (AGAIN.includes(error.status)) told.timer = setTimeout(again, (error.after || 2) * 1000);
			else {
				toast(`${name}: ${error.message}`);
				this.drop(told);
			}
		}
	}

	settle(told, file) {
		const { chip, progress } = told, { type, sha256, reading } = file;
		told.file = file;
		progress.hidden = true;
		if (type?.startsWith("image/")) chip.prepend(h("img", { alt: "", src: `api/v1/files/${sha256}` }));
		if (reading) chip.append(h("small.reading", said(reading)));
		this.changed();
		this.hear?.(told);
	}

	drop({ chip }) {
		chip.remove();
		this.chips.delete(chip);
		this.changed();
	}

	changed() {
		this.hidden = !this.chips.size;
		keepFiles(this.chat, this.kept);
	}
}

/** A photo that is too large for models, smaller. */
async function scaled(file) {
	if (file.size <= PHOTO_BYTES || !["image/jpeg", "image/png", "image/webp"].includes(file.type)) return file;
	try {
		const picture = await createImageBitmap(file), scale = PHOTO_SIDE / Math.max(picture.width, picture.height);
		const [width, height] = [picture.width, picture.height].map((each) => Math.round(each * Math.min(1, scale)));
		const canvas = h("canvas", { width, height });
		canvas.getContext("2d").drawImage(picture, 0, 0, width, height);
		const blob = await new Promise((resolve) => canvas.toBlob(resolve, "image/jpeg", 0.85));
		const name = file.name.replace(/\.\w+$/, "");
		return blob.size < file.size ? new File([blob], `${name}.jpg`, { type: blob.type }) : file;
	} catch {
		return file;
	}
}

export const shownFiles = (files) => h("div.files", files.map(({ sha256, name, type, bytes, reading }) => {
	const href = `api/v1/files/${sha256}?name=${encodeURIComponent(name)}`;
	if (type?.startsWith("audio/")) return h("audio", { controls: true, preload: "none", title: name, src: href });
	return type?.startsWith("image/")
		? h("a", { href, target: "_blank" }, h("img", { loading: "lazy", alt: name, src: href }))
		: h("a.chip", { href, download: name }, h("span.name", name), " ", bytes && h("small", said(reading) || size(bytes)));
}));

customElements.define("klaw-files", Files);
