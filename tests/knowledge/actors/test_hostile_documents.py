"""Documents that are made to do harm are refused by name and within their limits, and the parent goes on."""

import os
import signal
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from klaw.knowledge.reading.reader import DocumentReading, ReadingLimits
from tests.support.documents import Pdf, Text, codes, docx, pdf, read, reading, write
from tests.support.repository import REPOSITORY

MIB = 1 << 20
SMALL = ReadingLimits(memory_bytes=192 * MIB, unpacked_bytes=64 * MIB)
"""So that what would fill the memory fails quickly."""
HANGING_S = 120.0


def many_objects() -> bytes:
    """A million of them, as small as can be."""
    out, offsets = bytearray(b"%PDF-1.7\n"), []
    first = (
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Count 1 /Kids [3 0 R] >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] >>",
    )
    for number in range(1, 1_000_001):
        offsets.append(len(out))
        out += b"%d 0 obj\n%b\nendobj\n" % (number, first[number - 1] if number <= 3 else b"<< /A 1 >>")
    begin = len(out)
    out += b"xref\n0 1000001\n0000000000 65535 f \n" + b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    return bytes(out) + b"trailer << /Size 1000001 /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % begin


def endless_page() -> bytes:
    """The second page of three says the same 20 million times, in 500 kB."""
    packer = zlib.compressobj()
    line = b"(abc def) Tj\n" * 100_000
    content = packer.compress(b"BT /F1 9 Tf 72 700 Td\n") + b"".join(packer.compress(line) for _ in range(200))
    content += packer.flush()
    made = Pdf()
    made.add("<< /Type /Catalog /Pages 2 0 R >>")
    made.add("<< /Type /Pages /Count 3 /Kids [3 0 R 4 0 R 5 0 R] >>")
    for stream in (6, 7, 8):
        made.add(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents {stream} 0 R "
            "/Resources << /Font << /F1 9 0 R >> >> >>"
        )
    made.stream(b"BT /F1 9 Tf 72 700 Td (The first page) Tj ET")
    made.add(b"<< /Filter /FlateDecode /Length %d >>\nstream\n%b\nendstream" % (len(content), content))
    made.stream(b"BT /F1 9 Tf 72 700 Td (The last page) Tj ET")
    made.add("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    return made.bytes(1)


def page_in_itself() -> bytes:
    """Its drawing calls a drawing that calls itself three times."""
    made = Pdf()
    made.add("<< /Type /Catalog /Pages 2 0 R >>")
    made.add("<< /Type /Pages /Count 1 /Kids [3 0 R] >>")
    resources = "/Resources << /XObject << /X 5 0 R >> >> "
    made.add(f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R {resources}>>")
    made.stream(b"/X Do /X Do")
    made.stream(b"/X Do /X Do /X Do", f"/Type /XObject /Subtype /Form /BBox [0 0 1 1] {resources}")
    return made.bytes(1)


def million_pages() -> bytes:
    made = Pdf()
    made.add("<< /Type /Catalog /Pages 2 0 R >>")
    made.add("<< /Type /Pages /Count 1000000 /Kids [3 0 R] >>")
    made.add("<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] >>")
    return made.bytes(1)


LAUGHS = "".join(f'<!ENTITY {chr(98 + n)} "{f"&{chr(97 + n)};" * 10}">' for n in range(9))
PARTS = b"Subject: x\nContent-Type: multipart/mixed; boundary=b\n\n" + b"--b\nContent-Type: text/plain\n\nhi\n" * 10_000


@pytest.mark.parametrize(
    ("name", "make", "expected"),
    [
        ("objects.pdf", many_objects, {"no_text", "crashed", "too_much_memory"}),
        ("itself.pdf", page_in_itself, {"no_text"}),
        ("million.pdf", million_pages, {"too_many_pages"}),
        ("bomb.docx", lambda: docx(bytes(MIB) for _ in range(65)), {"unpacks_too_large"}),
        ("small bomb.docx", lambda: docx(bytes(MIB) for _ in range(20)), {"unpacks_too_large"}),
        ("laughs.docx", lambda: docx("&j;", f'<!DOCTYPE a [<!ENTITY a "ha">{LAUGHS}]>'), {"not_allowed"}),
        ("deep.docx", lambda: docx("<w:sdt>" * 100_000 + "</w:sdt>" * 100_000), {"broken"}),
        ("deep.json", lambda: b"[" * 1_000_000, {"too_deep"}),
        ("parts.eml", lambda: PARTS + b"--b--\n", {"too_much_text"}),
        ("line.csv", lambda: b"a,b\n" + b"x" * 100_000_000, {"too_much_text"}),
    ],
)
async def test_is_refused_by_name(tmp_path: Path, name: str, make: Callable[[], bytes], expected: set[str]) -> None:
    blocks, report = await read(write(tmp_path / name, make()), limits=SMALL)
    assert (blocks, report.failed) == ([], True)
    assert codes(report)[-1] in expected
    assert report.problems[-1].text.startswith(f"{name}: ")


async def test_endless_page_is_left_out(tmp_path: Path) -> None:
    blocks, report = await read(write(tmp_path / "a.pdf", endless_page()), limits=SMALL)
    assert [(block.page, block.text) for block in blocks] == [(1, "The first page"), (3, "The last page")]
    assert [(problem.code, problem.page) for problem in report.problems] == [("crashed", 2)]
    assert report.problems[0].text.startswith("a.pdf, page 2: ")


@pytest.mark.parametrize("tag", [b"<div>", b"<b>", b"<ul><li>", b"<table><tr><td>"])
async def test_deeply_nested_page_is_read_or_refused(tmp_path: Path, tag: bytes) -> None:
    blocks, report = await read(write(tmp_path / "a.html", b"<!doctype html>" + tag * 20_000 + "конец".encode()))
    assert report.failed or "конец" in blocks[-1].text


async def test_nothing_that_cannot_be_stored_comes_out(tmp_path: Path) -> None:
    bad = "Начало \ud800 \0 конец\u202e.".encode("utf-8", "surrogatepass")
    for name, data in (("a.txt", bad), ("a.json", b'["\\ud800 tail \\u0000"]'), ("a.md", b"# " + bad), ("a.eml", bad)):
        blocks, _ = await read(write(tmp_path / name, data))
        for block in blocks:
            text = block.text + "".join(block.headings)
            assert "\0" not in text
            text.encode()


async def test_a_file_that_is_too_large_is_not_even_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "a.pdf"
    with path.open("wb") as file:
        file.write(b"%PDF-1.7\n")
        file.truncate(2 << 30)
    blocks, report = await read(path)
    assert (blocks, report.failed, codes(report)) == ([], True, ["too_large"])


async def test_too_much_text_ends_the_reading(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "много слов\n\n" * 10_000)
    blocks, report = await read(path, limits=ReadingLimits(text_chars=10_000))
    assert (len(blocks), report.failed, codes(report)) == (1000, True, ["too_much_text"])
    blocks, report = await read(path, limits=ReadingLimits(blocks=10))
    assert (len(blocks), codes(report)) == (10, ["too_much_text"])


def child_of(begun: DocumentReading) -> int:
    assert begun._process is not None
    return begun._process.pid


PAGES = [
    [Text("Раздел", size=20), f"Страница {number}: текст."] if number % 7 == 1 else [f"Page {number} goes on."]
    for number in range(1, 3001)
]


async def test_child_that_is_killed_is_replaced_and_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    path = write(tmp_path / "a.pdf", pdf(PAGES))
    expected, _ = await read(path)
    got = []
    async with reading(path) as begun:
        async for block in begun:
            got.append(block)
            if len(got) in (1, 1000, 2000):
                os.kill(child_of(begun), signal.SIGKILL)
    assert got == expected
    assert begun.report.problems == ()


async def test_child_that_is_killed_again_and_again_is_given_up(tmp_path: Path) -> None:
    path = write(tmp_path / "a.pdf", pdf(PAGES))
    async with reading(path) as begun:
        async for _ in begun:
            os.kill(child_of(begun), signal.SIGKILL)
    assert begun.report.failed
    assert codes(begun.report) == ["crashed"]


async def test_document_without_pages_fails_when_its_child_is_killed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "много слов\n\n" * 400_000)
    async with reading(path) as begun:
        async for _ in begun:
            os.kill(child_of(begun), signal.SIGKILL)
    assert (begun.report.failed, codes(begun.report)) == (True, ["crashed"])


async def test_child_that_hangs_is_ended(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "много слов\n\n" * 400_000)
    with trio.fail_after(HANGING_S):
        async with reading(path, limits=ReadingLimits(parsing_s=1.0)) as begun:
            child = child_of(begun)
            async for _ in begun:
                os.kill(child, signal.SIGSTOP)
        assert (begun.report.failed, codes(begun.report)) == (True, ["too_slow"])
        assert not alive(child)


async def test_time_for_the_whole_is_limited(tmp_path: Path) -> None:
    path = write(tmp_path / "a.pdf", pdf(PAGES))
    _, report = await read(path, limits=ReadingLimits(seconds=0.05))
    assert (report.failed, codes(report)) == (True, ["too_slow"])


async def test_cancelled_or_left_early_no_child_is_left(tmp_path: Path) -> None:
    path = write(tmp_path / "a.pdf", pdf(PAGES))
    children = []
    async with reading(path) as begun:
        async for _ in begun:
            children.append(child_of(begun))
            break
    with trio.CancelScope() as scope:
        async with reading(path) as begun:
            children.append(child_of(begun))
            async for _ in begun:
                scope.cancel(reason="the test says so")
    assert scope.cancelled_caught
    assert not any(map(alive, children))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


PARENT = """
import sys, trio
from pathlib import Path
from tests.support.documents import reading
async def main():
    async with reading(Path(sys.argv[1])) as begun:
        async for _ in begun:
            print(begun._process.pid, flush=True)
            await trio.sleep_forever()
trio.run(main)
"""


@contextmanager
def ended(pid: int) -> Iterator[None]:
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)


async def test_child_dies_with_its_parent(tmp_path: Path) -> None:
    """The child is stopped inside of its work, which it would go on with for minutes."""
    path = write(tmp_path / "a.txt", "много слов\n\n" * 4_000_000)
    process = await trio.lowlevel.open_process(
        [sys.executable, "-c", PARENT, str(path)], stdout=-1, cwd=REPOSITORY, env={}
    )
    assert process.stdout is not None
    with ended(process.pid):
        with trio.fail_after(HANGING_S):
            child = int(await process.stdout.receive_some(100))
        assert alive(child)
    await process.wait()
    for _ in range(int(HANGING_S / 0.05)):
        if not alive(child):
            break
        await trio.sleep(0.05)
    assert not alive(child)
    await process.stdout.aclose()


async def test_limits_hold_in_the_child(tmp_path: Path) -> None:
    """What the system says of it, not what was asked for."""
    path = write(tmp_path / "a.txt", "много слов\n\n" * 400_000)
    async with reading(path, limits=SMALL) as begun:
        async for _ in begun:
            child = Path(f"/proc/{child_of(begun)}")
            limits = {line[:25].strip(): line[25:].split()[0] for line in (child / "limits").read_text().splitlines()}
            environment = (child / "environ").read_bytes()
            opened = {str(each.readlink()) for each in (child / "fd").iterdir()}
            break
    assert limits["Max data size"] == str(SMALL.memory_bytes)
    assert (limits["Max file size"], limits["Max core file size"], limits["Max processes"]) == ("0", "0", "0")
    assert limits["Max open files"] == "32"
    assert b"=" not in environment.replace(b"LC_CTYPE=C.UTF-8", b"")
    assert {each for each in opened if each.startswith("/")} == {"/dev/null", str(path)}


UNDER_SYSTEMD = """
import ctypes, sys, trio
from pathlib import Path
from tests.support.documents import reading
async def main():
    if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0):  # PR_SET_MDWE: what MemoryDenyWriteExecute does; inherited by children
        raise SystemExit(9)
    for path in sys.argv[1:]:
        async with reading(Path(path)) as begun:
            async for block in begun:
                print(block.text)
trio.run(main)
"""


async def test_libraries_need_no_writable_code(tmp_path: Path) -> None:
    """The service forbids it (conf/klaw.service)."""
    made = [write(tmp_path / "a.pdf", pdf([["The pump."]])), write(tmp_path / "a.json", b'["The valve."]')]
    made.append(write(tmp_path / "a.docx", docx("<w:p><w:r><w:t>The tenant.</w:t></w:r></w:p>")))
    done = await trio.run_process(
        [sys.executable, "-c", UNDER_SYSTEMD, *map(str, made)], capture_stdout=True, check=False, cwd=REPOSITORY
    )
    if done.returncode == 9:
        pytest.skip("needs Linux 6.3, which can forbid writable code to one process")
    assert done.stdout.decode().split("\n") == ["The pump.", "[0]: The valve.", "The tenant.", ""]
