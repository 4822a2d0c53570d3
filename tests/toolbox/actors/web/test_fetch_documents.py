"""web_fetch of documents: by content type or content, through the child that reads documents, and never more than is
allowed."""

import gzip
from pathlib import Path

import pytest
import trio

from klaw.agent.linked_answer import link_sources
from klaw.domain.names import UserId
from klaw.errors import ToolRefused
from klaw.toolbox.spec import ToolContext, Trail
from klaw.toolbox.web_fetch import web_fetch
from tests.knowledge.actors.test_reading import epub
from tests.support.documents import docx, pdf
from tests.support.programs.web_site import answer, redirect, site

WORD = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
PDF = pdf([["The keeper lives on the first floor."], ["Маяк построен в 1818 году."]], title="Маяк")
DOCX = docx("<w:p><w:r><w:t>Смотритель живёт на первом этаже.</w:t></w:r></w:p>")
SCAN = pdf([b"0 0 595 842 re f", b"0 0 595 842 re f"])


@pytest.mark.parametrize("kind", ["application/pdf", "application/octet-stream", "text/plain", ""])
async def test_a_pdf_is_read_with_its_pages_whatever_the_server_calls_it(kind: str) -> None:
    async with site() as (served, fetcher, _):
        served.pages["/papers/lighthouse"] = answer(PDF, kind)
        page = await fetcher.fetch(served.url("/papers/lighthouse"))
        assert page.text == "[page 1]\n\nThe keeper lives on the first floor.\n\n[page 2]\n\nМаяк построен в 1818 году."
        assert (page.title, page.cut, page.problems) == ("Маяк", False, ())


@pytest.mark.parametrize(
    ("body", "kind", "said"),
    [
        (DOCX, WORD, "Смотритель живёт на первом этаже."),
        (DOCX, "application/zip", "Смотритель живёт на первом этаже."),
        (epub(), "application/epub+zip", ""),
        (
            b"Subject: Key\nFrom: a@b.example\nContent-Type: text/plain\n\nUnder the mat.",
            "message/rfc822",
            "Under the mat.",
        ),
    ],
)
async def test_other_documents_are_read(body: bytes, kind: str, said: str) -> None:
    async with site() as (served, fetcher, _):
        served.pages["/file"] = answer(body, kind)
        page = await fetcher.fetch(served.url("/file"))
        assert page.text
        assert said in page.text


@pytest.mark.parametrize(
    ("body", "kind", "reason"),
    [
        (SCAN, "application/pdf", "lighthouse.*text"),
        (PDF[:300], "application/pdf", "lighthouse"),
        (docx(bytes(1 << 20) for _ in range(600)), WORD, "lighthouse"),
        (b"PK\x03\x04 nothing", "text/html", "damaged archive"),
        (b"MZ\x90\0\x03" * 100, "application/octet-stream", "program"),
        (b"\x89PNG\0", "image/png", "image/png, not text"),
        (b"ID3", "audio/mpeg", "audio/mpeg, not text"),
    ],
)
async def test_a_document_without_text_is_refused_with_its_problem(body: bytes, kind: str, reason: str) -> None:
    async with site() as (served, fetcher, _):
        served.pages["/lighthouse"] = answer(body, kind)
        with pytest.raises(ToolRefused, match=reason):
            await fetcher.fetch(served.url("/lighthouse"))


async def test_a_document_of_2_gb_is_left_at_the_limit() -> None:
    sent = 0
    async with site(max_document_bytes=300_000) as (served, fetcher, _):

        async def play(stream: trio.SocketStream) -> None:
            nonlocal sent
            head = b"HTTP/1.1 200 OK\r\nContent-Type: application/pdf\r\nContent-Length: 2000000000\r\n\r\n%PDF-1.7\n"
            await stream.send_all(head)
            while True:
                await stream.send_all(b" " * 65_536)
                sent += 65_536

        served.pages["/"] = play
        served.pages["/bomb"] = answer(
            gzip.compress(b"%PDF-1.7" + bytes(50_000_000)), "application/pdf", Content_Encoding="gzip"
        )
        for path in ("/", "/bomb"):
            with pytest.raises(ToolRefused, match=r"larger than 300,000 bytes \(tools.web.maxDocumentBytes\)"):
                await fetcher.fetch(served.url(path))
        await served.gone.wait()
        assert sent < 20_000_000


async def test_a_document_that_drips_is_not_waited_for() -> None:
    async with site(timeout_s=0.5) as (served, fetcher, _):

        async def drip(stream: trio.SocketStream) -> None:
            await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/pdf\r\n\r\n%PDF-1.7\n")
            while True:
                await stream.send_all(b"%")
                await trio.sleep(0.05)

        served.pages["/"] = drip
        with pytest.raises(ToolRefused, match="did not come within"):
            await fetcher.fetch(served.url("/"))


async def test_a_document_behind_a_redirect_inward_is_refused() -> None:
    async with site() as (served, fetcher, _):
        served.pages["/secret.pdf"] = answer(PDF, "application/pdf")
        for host in ("127.0.0.1", "2130706433", "[::1]", "169.254.169.254", "evil.example", "localhost"):
            served.pages["/"] = redirect(f"http://{host}:{served.port}/secret.pdf")
            with pytest.raises(ToolRefused):
                await fetcher.fetch(served.url("/"))
        assert {head.split()[1] for head in served.heads} == {"/"}


async def test_a_page_can_be_quoted_without_its_markup() -> None:
    async with site() as (served, fetcher, _):
        served.pages["/"] = answer(b"<p>The <a href='/k'>keeper</a> of snake_case lives on the <b>first</b> floor.</p>")
        spec, trail = web_fetch(fetcher, 30), Trail()
        context = ToolContext(user=UserId("local"), chat=None, trail=trail, call="c1")
        await spec.invoke(context, spec.bind({"url": served.url("/")}))
        said = "“The keeper of snake_case lives on the first floor” [1]"
        assert link_sources(said, trail.sources).text == said


async def test_a_long_document_is_cut_and_its_page_can_be_cited(tmp_path: Path) -> None:
    async with site() as (served, fetcher, _):
        served.pages["/%D0%BA%D0%BD%D0%B8%D0%B3%D0%B0.txt"] = answer(b"x" * 10, "application/x-text")
        served.pages["/long.pdf"] = answer(pdf([["слово " * 20] * 50 for _ in range(300)]), "application/pdf")
        spec, trail = web_fetch(fetcher, 30, mark=lambda: "cafe0001"), Trail()
        context = ToolContext(user=UserId("local"), chat=None, trail=trail, call="c1")
        text = await spec.invoke(context, spec.bind({"url": served.url("/long.pdf")}))
        assert "[The page is longer; this is its beginning.]" in text
        assert len(text) < 1_001_000
        assert "Put [1] behind each statement" in text.splitlines()[0]
        assert trail.sources.brought_by("c1") == [(1, served.url("/long.pdf"), "")]
        assert "xxxxxxxxxx" in await spec.invoke(context, spec.bind({"url": served.url("/книга.txt")}))
