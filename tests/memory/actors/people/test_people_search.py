"""Search tells who somebody is whom the query names: by name or alias, in any case, of this user only, bounded."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from klaw.actor.clock import SystemClock
from klaw.domain.fact import Origin
from klaw.domain.names import UserId, chat_id
from klaw.domain.person import PersonId
from klaw.domain.search import SearchPage
from klaw.memory.embed.embedder import Embedder
from klaw.memory.search.format_results import show
from klaw.memory.search.named_people import FACTS_EACH, MOST, named
from klaw.memory.search.search import MemorySearch
from klaw.operations.slash import OperationCommands
from klaw.store.kinds import facts, messages
from klaw.store.search.history_search import HistoryFilters
from klaw.store.store import Store
from tests.support.facts import fact
from tests.support.people import add, in_topic, people_of
from tests.support.stores import new, running_store
from tests.support.topics import ANNA, archive, say

BORIS = UserId("boris")


async def past(store: Store) -> None:
    """Аня, who is also Анечка and Anna Smith, is known to anna; another Аня to boris."""
    (row,) = await say(store, "Аня звонила вчера")
    (topic,) = await archive(store, [row])
    mention = in_topic(topic.id, at="2026-11-20T10:00:00.000Z")
    await add(store, "Аня", aliases=["Анечка", "Anna Smith"], relation="сестра", mention=mention)
    await add(store, "Пётр Ильич", relation="boss")
    await add(store, "Аня", user="boris", relation="secret friend")
    for importance, text in enumerate(("Аню зовут Анна", "Анечка любит чай", "Anna Smith is a doctor", "Ане 30 лет")):
        await store.writer.run(facts.put, fact(text, user="anna", importance=50 + importance), "new")
    await store.writer.run(facts.put, fact("Аня, says a web page", user="anna", origin=Origin.TOOL), "new")
    await store.writer.run(facts.put, fact("Аня is boris's secret", user="boris"), "new")


async def search(store: Store, text: str, user: UserId = ANNA, **filters: object) -> SearchPage:
    searching = MemorySearch(store.readers, Embedder(SystemClock(), enabled=False), SystemClock())
    return await searching.search(text, HistoryFilters(user=user, **filters))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "asked",
    [
        "Кто такая Аня?",
        "who is аня",
        "что подарить Ане",
        "Видел Аню?",
        "АНЕЧКУ",
        "where is Anna Smith's office",
        "smith",
    ],
)
async def test_who_is_named_in_whatever_form_is_told(tmp_path: Path, asked: str) -> None:
    async with running_store(tmp_path) as store:
        await past(store)
        (who,) = (await search(store, asked)).people
        assert (who.name, who.relation, who.aliases) == ("Аня", "сестра", ("Анечка", "Anna Smith"))
        assert who.last_at == "2026-11-20T10:00:00.000Z"
        assert [each.text for each in who.facts] == ["Ане 30 лет", "Anna Smith is a doctor", "Анечка любит чай"]
        assert len(who.facts) == FACTS_EACH


@pytest.mark.parametrize("asked", ["погода", "any news?", "анекдот", "ильм", "…", "я"])
async def test_nobody_is_told_whom_the_query_does_not_name(tmp_path: Path, asked: str) -> None:
    async with running_store(tmp_path) as store:
        await past(store)
        assert (await search(store, asked)).people == ()


async def test_only_this_users_people_and_facts(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await past(store)
        (who,) = (await search(store, "Аня", BORIS)).people
        assert (who.relation, [each.text for each in who.facts]) == ("secret friend", ["Аня is boris's secret"])
        page = await search(store, "Аня")
        assert "secret" not in show(page, page.results, page.topics, page.people)
        assert (await search(store, "Аня", UserId("nobody"))).people == ()


async def test_with_a_filter_or_for_messages_only_nobody_is_told(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await past(store)
        assert (await search(store, "Аня", chat=chat_id(ANNA, "main"))).people == ()
        assert (await search(store, "Аня", since="2026-01-01T00:00:00.000Z")).people == ()
        searching = MemorySearch(store.readers, Embedder(SystemClock(), enabled=False), SystemClock())
        only = await searching.search("Аня", HistoryFilters(user=ANNA), kinds=frozenset({"message"}))
        assert only.people == ()
        assert (await searching.search("Аня", HistoryFilters(user=ANNA), page=2)).people == ()


async def test_who_was_merged_or_removed_is_told_as_who_they_are(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        keeper, loser, gone = await add(store, "Anna"), await add(store, "Аня"), await add(store, "Zoe")
        await people_of(store).merge(ANNA, loser.id, keeper.id)
        await people_of(store).remove(ANNA, gone.id)
        assert [each.name for each in (await search(store, "Аню")).people] == ["Anna"]
        assert (await search(store, "Zoe")).people == ()


def test_whole_names_come_first_and_no_more_than_a_few() -> None:
    known = [(PersonId(f"p{number}"), ["anna smith"]) for number in range(5)]
    known.append((PersonId("whole"), ["anna"]))
    assert named("Is Anna here?", known, limit=MOST) == ["whole", "p0", "p1"]


async def test_the_model_is_shown_who_it_is(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await add(store, "Anna", relation="sister", aliases=["Аня"])
        await store.writer.run(facts.put, fact("Anna is  allergic\nto peanuts", user="anna", id="f1"), "new")
        page = await search(store, "Who is Anna?")
        first = show(page, page.results, page.topics, page.people).split("\n")[0]
        assert first == "1. [person, the user's sister, also called Аня]: Anna. (fact f1) Anna is allergic to peanuts"


async def test_slash_people_lists_and_tells(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        answers = OperationCommands()
        answers.parts = SimpleNamespace(readers=store.readers)

        async def tell(text: str) -> str:
            answer = await answers.run("/people", chat_id(ANNA, "main"), text, nothing_to_stop)
            assert not answer.metadata
            return answer.text

        assert "klaw people add" in await tell("")
        await past(store)
        await store.writer.run(messages.append, [new("x", user="anna")])
        listed = (await tell("")).split("\n")
        assert listed[1:] == ["  Аня  сестра  also Анечка, Anna Smith  named in 1", "  Пётр Ильич  boss"]
        told = (await tell("Аню")).split("\n")
        assert told[0].startswith("Аня  сестра  also Анечка, Anna Smith  last named 2026-11-20  person:p")
        assert told[1] == "  Ане 30 лет"
        assert await tell("Петру Ильичу") != await tell("Zoe")
        assert await tell("Zoe") == "Nobody of that name is known."


async def nothing_to_stop(_reason: str) -> bool:
    return False
