// The microphone, sounds that are written down, and answers that are read aloud.

import { h, iconButton, parsed, post, Problem, t, toast } from "../page.js";

/** Let a chat listen: attached sounds are written down; where the browser can record (a secure context), there is a microphone. */
export function listen({ files, gone }) {
  if (files.hear) return;
  files.hear = (told) => told.file.type?.startsWith("audio/") && hear(files, told);
  files.chips.forEach((told) => told.file && files.hear(told));
  if (!navigator.mediaDevices || !window.MediaRecorder) return;
  let recorder;
  const button = iconButton("microphone", t("Speak"), async () => {
    if (recorder) return recorder.stop();
    const stream = await navigator.mediaDevices.getUserMedia({ audio: true }).catch(() => toast(t("The browser does not let this page use the microphone.")));
    if (!stream) return;
    const pieces = [], began = Date.now(), time = h("small");
    const lasts = () => new Date(Date.now() - began).toISOString().slice(14, 19);
    const ticks = setInterval(() => { time.textContent = lasts(); }, 250);
    recorder = new MediaRecorder(stream, { audioBitsPerSecond: 32000 });
    recorder.ondataavailable = ({ data }) => pieces.push(data);
    recorder.onstop = () => {
      clearInterval(ticks);
      stream.getTracks().forEach((each) => each.stop());
      const [type] = recorder.mimeType.split(";");
      files.attach(new File(pieces, `${t("voice")} ${lasts()}.${type.slice(6)}`, { type }));
      recorder = null;
      button.ariaPressed = "false";
      time.remove();
    };
    recorder.start();
    button.ariaPressed = "true";
    button.append(time);
  }, { ariaPressed: "false" });
  gone.signal.addEventListener("abort", () => recorder?.stop());
  files.button.after(button);
}

/** Write a sound down, into the field, where the person can correct it. */
async function hear(files, told) {
  const note = told.chip.querySelector(".reading") || told.chip.appendChild(h("small.reading"));
  note.textContent = t(told.file.transcribed ? "transcribed" : "Listening …");
  if (told.file.transcribed) return;
  told.hearing = true;
  try {
    const { text } = await post("/voice/transcribe", { sha256: told.file.sha256 });
    if (!files.chips.has(told.chip)) return;
    told.file.transcribed = true;
    files.field.value = [files.field.value.trim(), text].filter(Boolean).join(" ");
    files.field.dispatchEvent(new Event("input"));
    note.textContent = t("transcribed");
    files.changed();
  } catch (error) {
    note.replaceChildren(error.message, " ", h("button", { type: "button", onclick: () => hear(files, told) }, t("Retry")));
  }
  told.hearing = false;
}

/** Let an answer be read aloud, with a player below it. */
export async function speak(row, chat) {
  const response = await fetch("/api/v1/voice/speak", { method: "POST", body: JSON.stringify({ chat, seq: Number(row.dataset.seq) }) }).catch(() => null);
  if (!response?.ok) return toast(new Problem(response?.status, parsed(await response?.text(), null) || {}).message);
  row.querySelector(".aloud")?.remove();
  row.append(h("audio.aloud", { controls: true, autoplay: true, src: URL.createObjectURL(await response.blob()) }));
}
