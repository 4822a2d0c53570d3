"""Scans: pages that are pictures, read by the program ``tesseract`` where it is installed.

What reads a document may start no programs. So a helper is started before its limits are set. It knows nothing of the
document and gets pictures only, which it gives to tesseract, under limits of its own."""

import os
import shutil
import subprocess
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, Self

from klaw.actor.process import limit

PAGE_S = 45
MAX_PAGES = 500
PIXELS_PER_POINT = 300 / 72
MAX_PIXELS = 12_000_000
MEMORY_BYTES = 768 * 1024 * 1024
LANGUAGES = ("rus", "eng")
INSTALL = "sudo apt install tesseract-ocr tesseract-ocr-rus"


class Ocr:
    """A helper for one document. It ends when this process does."""

    def __init__(self, program: str) -> None:
        self.pages = 0
        self._pipe, pipe = Pipe()
        if os.fork() == 0:
            try:
                null = os.open(os.devnull, os.O_RDWR)
                for stream in (0, 1, 2):
                    os.dup2(null, stream)
                os.closerange(3, self._pipe.fileno() + 1)  # the document, too
                _serve(program, pipe)
            finally:
                os._exit(0)
        pipe.close()

    @classmethod
    def start(cls) -> Self | None:
        program = shutil.which("tesseract", path=os.defpath)
        return cls(program) if program else None

    def read(self, picture: bytes) -> str | None:
        """The text of a picture (PNM); None if it took too long, or the program failed."""
        self.pages += 1
        self._pipe.send_bytes(picture)
        answer = self._pipe.recv_bytes()
        return answer[1:].decode("utf-8", "replace") if answer.startswith(b"+") else None


def _serve(program: str, pipe: Connection) -> None:
    environment = {"OMP_THREAD_LIMIT": "1", "PATH": os.defpath}
    listed = subprocess.run(
        [program, "--list-langs"], capture_output=True, env=environment, timeout=PAGE_S, check=False
    )
    languages = "+".join(each for each in LANGUAGES if each.encode() in listed.stdout.split()) or "eng"
    while True:
        picture = pipe.recv_bytes()
        try:
            done = subprocess.run(
                [program, "stdin", "stdout", "-l", languages, "--dpi", "300"],
                input=picture,
                capture_output=True,
                env=environment,
                timeout=PAGE_S,
                preexec_fn=lambda: limit(MEMORY_BYTES, 2 * PAGE_S, nice=0),
                check=True,
            )
        except subprocess.SubprocessError:
            pipe.send_bytes(b"-")
        else:
            pipe.send_bytes(b"+" + done.stdout)


def picture_of(page: Any) -> bytes:
    """A page of a PDF as it is printed, in grey (PNM)."""
    width, height = page.get_size()
    scale = min(PIXELS_PER_POINT, (MAX_PIXELS / max(1, width * height)) ** 0.5)
    bitmap = page.render(scale=scale, grayscale=True)
    try:
        data, stride = bytes(bitmap.buffer), bitmap.stride
        rows = b"".join(data[at * stride : at * stride + bitmap.width] for at in range(bitmap.height))
        return b"P5 %d %d 255\n" % (bitmap.width, bitmap.height) + rows
    finally:
        bitmap.close()
