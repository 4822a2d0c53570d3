"""Listens and speaks with real programs, behind OpenAI's ``/v1/audio/transcriptions`` and ``/v1/audio/speech``:
pocketsphinx hears the sentences of a grammar, espeak-ng reads aloud. It needs the packages ``pocketsphinx`` and ``av``,
which Klaw does not have: run it with the Python of an environment that has them. Prints ``{"port": N}``.

    PYTHON speech_server.py SENTENCE …
"""

import io
import json
import re
import subprocess
import sys
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any

import av
from pocketsphinx import Decoder

RATE = 16_000
SILENCE = bytes(RATE)
"""Half a second, which the decoder wants on both sides."""
_PHONES = "AA,B,V,G,D,Y EH,Y AO,ZH,Z,IY,Y,K,L,M,N,AO,P,R,S,T,UW,F,HH,T S,CH,SH,SH,IH,EH,Y UW,Y AA"
LETTERS = dict(zip("абвгдеёжзийклмнопрстуфхцчшщыэюя", _PHONES.split(","), strict=True))
"""Russian words as the English model would spell them."""


class Listener:
    def __init__(self, sentences: list[str], folder: str) -> None:
        words = {word for sentence in sentences for word in sentence.lower().split()}
        self._decoder = Decoder(samprate=RATE, lm=None, cmn="batch")
        for word in sorted(words):
            if re.search("[а-яё]", word):
                self._decoder.add_word(word, " ".join(LETTERS[each] for each in word if each in LETTERS), True)
        grammar = Path(folder, "sentences.gram")
        grammar.write_text(
            f"#JSGF V1.0;\ngrammar sentences;\npublic <said> = {' | '.join(sentences).lower()};\n", encoding="utf-8"
        )
        self._decoder.add_jsgf_file("sentences", str(grammar))
        self._decoder.activate_search("sentences")
        self._alone = Lock()

    def hear(self, sound: bytes) -> str:
        with av.open(io.BytesIO(sound)) as file, self._alone:
            resampler = av.AudioResampler("s16", "mono", RATE)
            frames = [made for frame in file.decode(audio=0) for made in resampler.resample(frame)]
            pcm = b"".join(bytes(each.planes[0])[: each.samples * 2] for each in [*frames, *resampler.resample(None)])
            self._decoder.start_utt()
            self._decoder.process_raw(SILENCE + pcm + SILENCE, full_utt=True)
            self._decoder.end_utt()
            found = self._decoder.hyp()
        return found.hypstr if found is not None else ""


def speak(text: str) -> bytes:
    voice = "ru+f3" if re.search("[а-яё]", text, re.IGNORECASE) else "en-us+f3"
    made = subprocess.run(["espeak-ng", "-v", voice, "-s", "130", "--stdout", text], capture_output=True, check=True)
    return made.stdout


class Handler(BaseHTTPRequestHandler):
    listener: Listener

    def log_message(self, *_: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/v1/audio/speech":
            asked = json.loads(body)
            if asked.get("response_format") != "wav" and "response_format" in asked:
                self._answer(400, b'{"error": {"message": "only wav", "type": "invalid_request_error"}}')
            else:
                self._answer(200, speak(asked["input"]), "audio/wav")
            return
        form = message_from_bytes(f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode() + body)
        (sound,) = [part.get_payload(decode=True) for part in form.get_payload() if part.get_filename()]
        try:
            heard = self.listener.hear(sound)
        except av.error.FFmpegError:
            self._answer(400, b'{"error": {"message": "Invalid file format.", "type": "invalid_request_error"}}')
        else:
            self._answer(200, json.dumps({"text": heard}).encode())

    def _answer(self, status: int, body: bytes, media_type: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main(sentences: list[str]) -> None:
    with TemporaryDirectory() as folder:
        Handler.listener = Listener(sentences, folder)
        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        print(json.dumps({"port": server.server_port}), flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])
