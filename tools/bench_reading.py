"""How quickly documents are read and cut into passages, and how much memory that takes.

    python tools/bench_reading.py DIR [--pages 10000] [--json]

Reads all PDFs of a folder one after the other, then a made PDF of so many pages in Russian and English. Printed are
pages a second, the CPU time of a page in the child and in the parent (which tells more on a busy machine), the peak of
resident memory of the largest child, and by how much the parent grew.
"""

import argparse
import json
import random
import resource
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import trio

sys.path.insert(0, str(Path(__file__).parents[1]))

from klaw.knowledge.reading.passages import Cutter
from tests.support.documents import pdf, reading

WORDS = ("насос", "труба", "клапан", "договор", "платёж", "и", "the", "pump", "pressure", "contract", "tenant", "of")
LINES = 45
WORDS_IN_LINE = 9


async def read(path: Path) -> tuple[int, int, int, int]:
    """Pages, passages and characters of a document, none of which is kept, and the child's peak in MiB."""
    passages = characters = peak = 0
    cutter = Cutter()
    async with reading(path) as begun:
        async for block in begun:
            if begun._process is not None:
                with suppress(OSError, StopIteration):  # it has just ended
                    peak = max(peak, resident("VmHWM", begun._process.pid))
            for passage in cutter.add(block):
                passages += 1
                characters = passage.end
        for passage in cutter.finish():
            passages += 1
            characters = passage.end
    return begun.report.pages, passages, characters, peak


def made(pages: int) -> bytes:
    """A document of so many pages, always the same."""
    chosen = random.Random(16)

    def line() -> str:
        return " ".join(chosen.choices(WORDS, k=WORDS_IN_LINE)) + chosen.choice(("", "", "."))

    return pdf([f"Страница {number} of {pages}", *(line() for _ in range(LINES))] for number in range(1, pages + 1))


def forget_peak() -> None:
    """The peak of this process is counted from now on."""
    Path("/proc/self/clear_refs").write_text("5", "ascii")


def resident(name: str, process: int | str = "self") -> int:
    """In MiB; ``VmHWM`` is the peak."""
    status = Path(f"/proc/{process}/status").read_text("ascii")
    return int(next(line for line in status.splitlines() if line.startswith(name)).split()[1]) >> 10


def cpu_s(of: int) -> float:
    used = resource.getrusage(of)
    return used.ru_utime + used.ru_stime


async def measure(documents: list[Path]) -> dict[str, Any]:
    forget_peak()
    before, begun = resident("VmRSS"), time.monotonic()
    child_s, parent_s = cpu_s(resource.RUSAGE_CHILDREN), cpu_s(resource.RUSAGE_SELF)
    pages = passages = characters = peak = 0
    for path in documents:
        counted = await read(path)
        pages, passages, characters = pages + counted[0], passages + counted[1], characters + counted[2]
        peak = max(peak, counted[3])
    took_s = time.monotonic() - begun
    return {
        "documents": len(documents),
        "pages": pages,
        "passages": passages,
        "characters": characters,
        "seconds": round(took_s, 1),
        "pages_a_second": round(pages / took_s),
        "child_cpu_ms_a_page": round((cpu_s(resource.RUSAGE_CHILDREN) - child_s) * 1000 / pages, 2),
        "parent_cpu_ms_a_page": round((cpu_s(resource.RUSAGE_SELF) - parent_s) * 1000 / pages, 2),
        "child_peak_mib": peak,
        "parent_peak_mib": resident("VmHWM"),
        "parent_grew_mib": resident("VmHWM") - before,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pages", type=int, default=10_000, help="of the made document")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    results = {"folder": trio.run(measure, sorted(arguments.folder.rglob("*.pdf")))}
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "made.pdf"
        path.write_bytes(made(arguments.pages))
        results["made"] = trio.run(measure, [path])
    if arguments.json:
        print(json.dumps(results))
        return
    for name, result in results.items():
        print(f"{name}: " + ", ".join(f"{key} {value}" for key, value in result.items()))


if __name__ == "__main__":
    main()
