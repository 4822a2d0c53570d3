import { button, h, iconButton, parsed, post, Problem, t, toast } from "../page.js";

/** Write attached sounds down; show a microphone, which works in a secure context. */
export function listen({ files, gone }) {
	if (files.hear) return;
	files.hear = (told) => told.file.type?.startsWith("audio/") && hear(files, told);
	files.chips.forEach((told) => told.file && files.hear(told));
	if (!window.MediaRecorder) return;
	let recorder;
	const microphone = iconButton("microphone", "Speak", async () => {
		if (recorder) return recorder.stop();
		const devices = navigator.mediaDevices;
		const stream = await devices?.getUserMedia({ audio: true }).catch(() => null);
		if (!stream) return toast(t(devices ? "The browser does not let this page use the microphone."
			: "Browsers record over HTTPS only. Attach a sound file instead."));
		const pieces = [], began = Date.now(), time = h("small");
		const lasts = () => new Date(Date.now() - began).toISOString().slice(14, 19);
		const ticks = setInterval(() => { time.textContent = lasts(); }, 250);
		recorder = new MediaRecorder(stream, { audioBitsPerSecond: 32000 });
		recorder.ondataavailable = ({ data }) => pieces.push(data);
		recorder.onstop = () => {
			clearInterval(ticks);
			stream.getTracks().forEach((each) => each.stop());
			const [type] = pieces[0].type.split(";"); // Firefox resets mimeType
			files.attach(new File(pieces, `${t("voice")} ${lasts()}.${type.slice(6)}`, { type }));
			recorder = null;
			microphone.ariaPressed = "false";
			time.remove();
		};
		recorder.start();
		microphone.ariaPressed = "true";
		microphone.append(time);
	}, { ariaPressed: "false" });
	gone.signal.addEventListener("abort", () => recorder?.stop());
	files.button.after(microphone);
}

async function hear(files, told) {
	const { chip, file } = told, { field } = files;
	const note = chip.querySelector(".reading") || chip.appendChild(h("small.reading"));
	note.textContent = t(file.transcribed ? "transcribed" : "Listening …");
	if (file.transcribed) return;
	told.hearing = true;
	try {
		const { text } = await post("/voice/transcribe", { sha256: file.sha256 });
		if (!files.chips.has(chip)) return;
		file.transcribed = true;
		field.value = [field.value.trim(), text].filter(Boolean).join(" ");
		field.dispatchEvent(new Event("input"));
		note.textContent = t("transcribed");
		files.changed();
	} catch (error) {
		note.replaceChildren(error.message, " ", button("Retry", () => hear(files, told)));
	}
	told.hearing = false;
}

export async function speak(row, chat) {
	const body = JSON.stringify({ chat, seq: Number(row.dataset.seq) });
	const response = await fetch("api/v1/voice/speak", { method: "POST", body }).catch(() => null);
	if (!response?.ok) return toast(new Problem(response?.status, parsed(await response?.text(), null) || {}).message);
	row.querySelector(".aloud")?.remove();
	row.append(h("audio.aloud", { controls: true, autoplay: true, src: URL.createObjectURL(await response.blob()) }));
}
