"""Pages as sources, with a real HTTP server: fetched once, looked at again, kept when they are gone."""

from pathlib import Path
from typing import Any

from klaw.domain.knowledge import DocumentState
from tests.support.documents import pdf
from tests.support.knowledge_world import knowledge_world
from tests.support.programs.web_site import answer, site
from tests.support.waiting import until

PAGE = "<!doctype html><title>Новости</title><h1>Погода</h1><p>Завтра снег и ветер до десяти метров.</p>".encode()


async def test_a_page_is_read_looked_at_again_and_kept_when_it_is_gone(tmp_path: Path) -> None:
    async with site() as (served, fetcher, _), knowledge_world(tmp_path, fetcher=fetcher) as world:
        served.pages["/"] = answer(PAGE, "text/html; charset=utf-8", ETag='"one"')
        url = served.url("/")
        source = await world.page(url)
        first = (await world.settled(source, url))[url]
        assert (first.state, first.format, first.title) == ("read", "html", "Новости")
        assert "снег" in " ".join(each.text for each in await world.passages(first))

        served.pages["/"] = b"HTTP/1.1 304 Not Modified\r\n\r\n"
        world.indexer.read_again(source.id)
        await until(lambda: len(served.heads) > 1)
        assert 'If-None-Match: "one"' in served.heads[-1]
        await until(lambda: _stamped(world, source, first.stamp))
        assert (await world.settled(source, url))[url].read_at == first.read_at

        served.pages["/"] = answer(b"gone", status="404 Not Found")
        world.indexer.read_again(source.id)
        await until(lambda: _problem(world, source, "gone"))
        kept = (await world.documents(source))[url]
        assert (kept.state, kept.passages) == ("read", first.passages)
        assert "kb_gone" in world.indexer.problems()
        assert not any("site.example" in text for text in world.indexer.problems().values())

        served.pages["/"] = answer(PAGE.replace("снег".encode(), "дождь".encode()), "text/html", ETag='"two"')
        world.indexer.read_again(source.id)
        await until(lambda: _says(world, source, "дождь"))
        now = (await world.documents(source))[url]
        assert (now.problems, world.indexer.problems()) == ((), {})


async def test_a_pdf_and_what_cannot_be_fetched(tmp_path: Path) -> None:
    async with site() as (served, fetcher, _), knowledge_world(tmp_path, fetcher=fetcher) as world:
        served.pages["/file"] = answer(pdf([["The first page of the report."]]), "application/pdf")
        served.pages["/picture"] = answer(b"\x89PNG", "image/png")
        report = await world.page(served.url("/file"))
        picture = await world.page(served.url("/picture"))
        found = (await world.settled(report, report.name))[report.name]
        assert [each.text for each in found.problems] == []
        assert (found.state, found.format, found.pages) == ("read", "pdf", 1)
        refused = (await world.settled(picture, picture.name))[picture.name]
        assert (refused.state, refused.problems[-1].code) == (DocumentState.FAILED, "unreachable")
        assert "image/png" in refused.problems[-1].text


async def _stamped(world: Any, source: Any, before: str) -> bool:
    return all(each.stamp != before for each in (await world.documents(source)).values())


async def _problem(world: Any, source: Any, code: str) -> bool:
    found = (await world.documents(source)).values()
    return any(problem.code == code for each in found for problem in each.problems)


async def _says(world: Any, source: Any, word: str) -> bool:
    for each in (await world.documents(source)).values():
        if any(word in passage.text for passage in await world.passages(each)):
            return True
    return False
