"""Search over a user's whole history: real store, real vectors."""

from collections.abc import Sequence
from pathlib import Path

import attrs
import pytest

from klaw.actor.clock import SystemClock, iso
from klaw.domain.message import MessageKind, Role
from klaw.domain.names import UserId, chat_id
from klaw.domain.search import SearchPage
from klaw.memory.embed.embedder import Embedder, EmbedderState
from klaw.memory.search.search import DEPTH, KEPT_LISTS, Cursor, MemorySearch, read_cursor
from klaw.store.kinds import messages
from klaw.store.search.history_search import HistoryFilters
from klaw.store.store import Store
from tests.conftest import CANARY
from tests.support.forgetting import forgetter
from tests.support.memory.recalling import Recalling, recalling
from tests.support.stores import START, new, running_store

ANN, BOB = UserId("ann"), UserId("bob")
SAID = (
    ("home", "Anna is allergic to peanuts, so we never bake with them."),
    ("home", "Код от калитки на даче — 4815, не забудь его."),
    ("work", "The train to Kazan leaves at seven in the morning."),
    ("work", "Поезд в Казань отходит в семь часов утра."),
    ("дача", "我妹妹不能吃花生，她过敏。"),
    ("дача", "👍"),
)


def searching(store: Store, embedder: Embedder | None = None) -> MemorySearch:
    return MemorySearch(store.readers, embedder or Embedder(SystemClock(), enabled=False), SystemClock())


async def fill(here: Recalling, user: UserId = ANN) -> None:
    await here.store.writer.run(messages.append, [new(text, user=user, chat=chat) for chat, text in SAID])
    await here.caught_up()


def places(page: SearchPage) -> list[str]:
    return [f"{each.chat.split(':')[1]}#{each.seq}" for each in page.results]


async def every_page(search: MemorySearch, text: str, filters: HistoryFilters, limit: int) -> list[str]:
    page = await search.search(text, filters, limit=limit)
    found = places(page)
    while page.next is not None:
        following = read_cursor(page.next)
        page = await search.search(text, filters, limit=limit, page=following)
        assert page.first == len(found) + 1
        found += places(page)
    assert page.total == len(found)
    return found


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("What must Anna not eat?", "home#1"),
        ("peanut allergies", "home#1"),
        ("калитка", "home#2"),
        ("Какой код от калитки?", "home#2"),
        ("when does the train to Kazan leave?", "work#1"),
        ("поезда на Казань", "work#2"),
        ("我妹妹对什么过敏？", "дача#1"),
        ("花", "дача#1"),
        ("👍", "дача#2"),
    ],
)
async def test_it_finds_in_all_chats(tmp_path: Path, embedding_model_dir: Path, query: str, first: str) -> None:
    async with recalling(tmp_path, embedding_model_dir) as here:
        await fill(here)
        found = await searching(here.store, here.embedder).search(query, HistoryFilters(user=ANN))
    assert first in places(found)[:2]  # an answer is embedded together with what it follows
    assert found.degraded == ()
    assert found.next is None


async def test_a_result_says_what_it_is_and_why(tmp_path: Path, embedding_model_dir: Path) -> None:
    async with recalling(tmp_path, embedding_model_dir) as here:
        await fill(here)
        found = await searching(here.store, here.embedder).search("Коды калитки", HistoryFilters(user=ANN))
    best = found.results[0]
    assert (best.chat, best.seq, best.role, best.vector_rank) == ("ann:home", 2, Role.USER, 1)
    assert best.words == ("Коды", "калитки")
    assert [best.snippet[begin:end] for begin, end in best.marks] == ["Код", "калитки"]
    assert best.distance is not None
    assert best.distance < 0.5
    assert best.bm25 is not None
    assert best.score > found.results[1].score
    assert found.words == ("Коды", "калитки")
    assert set(found.timings_ms) == {"embed", "search", "words", "vectors", "rank", "tokens", "read"}


@pytest.mark.parametrize("query", ["the price of a quantum telescope", "цена квантового телескопа"])
async def test_what_has_nothing_to_do_with_the_query_does_not_fill_the_page(
    tmp_path: Path, embedding_model_dir: Path, query: str
) -> None:
    """Every message is among the nearest when there are few; the gate keeps out what is only that."""
    async with recalling(tmp_path, embedding_model_dir) as here:
        await fill(here)
        found = await searching(here.store, here.embedder).search(query, HistoryFilters(user=ANN))
        assert found.degraded == ()
        assert found.results == ()


async def test_before_a_new_segment_is_searched_too(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await store.writer.run(messages.append, [new("the alarm code is 48151", user=ANN)])
        await store.writer.run(messages.append, [new("", user=ANN, role=Role.SYSTEM, kind=MessageKind.SESSION_BREAK)])
        await store.writer.run(
            messages.append, [new("another topic", user=ANN), new("/alarm code", user=ANN, kind=MessageKind.COMMAND)]
        )
        found = await searching(store).search("alarm codes", HistoryFilters(user=ANN))
    assert places(found) == ["main#1"]


async def test_nothing_of_another_user(tmp_path: Path, embedding_model_dir: Path) -> None:
    """Not by words, not by meaning, not by naming the other's chat, not by the name of the other's next page."""
    async with recalling(tmp_path, embedding_model_dir) as here:
        await fill(here, ANN)
        await here.store.writer.run(messages.append, [new("My own secret is a blue bicycle.", user=BOB, chat="home")])
        await here.caught_up()
        search = searching(here.store, here.embedder)
        of_ann = await search.search("калитка", HistoryFilters(user=ANN), limit=1)
        for query in ("калитка", "What must Anna not eat?", "👍", "花生"):
            found = await search.search(query, HistoryFilters(user=BOB))
            assert [each.chat for each in found.results] in ([], ["bob:home"])
            assert "bicycle" in "".join(each.snippet for each in found.results) or not found.results
            named = await search.search(query, HistoryFilters(user=BOB, chat=chat_id(ANN, "home")))
            assert named.results == ()
        assert of_ann.next is not None
        cursor = read_cursor(of_ann.next)
        assert isinstance(cursor, Cursor)
        theirs = await search.search("калитка", HistoryFilters(user=BOB), limit=1, page=attrs.evolve(cursor, page=1))
        assert all(each.chat == "bob:home" for each in theirs.results)
        assert (await search.search("калитка", HistoryFilters(user=UserId("nobody")))).results == ()


async def test_filters(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        for number in range(8):
            role = Role.USER if number % 2 else Role.ASSISTANT
            chat = "a" if number < 4 else "b"
            await store.writer.run(
                messages.append, [new(f"needle {number}", user=ANN, chat=chat, role=role, at=START + number)]
            )
        search = searching(store)

        async def seqs(**given: object) -> list[int]:
            found = await search.search("needle", attrs.evolve(HistoryFilters(user=ANN), **given), limit=100)  # type: ignore[arg-type]
            return sorted(int(each.snippet[-1]) for each in found.results)

        assert await seqs() == list(range(8))
        assert await seqs(chat=chat_id(ANN, "a")) == [0, 1, 2, 3]
        assert await seqs(role=Role.USER) == [1, 3, 5, 7]
        assert await seqs(since=iso(START + 2), until=iso(START + 5)) == [2, 3, 4]
        assert await seqs(chat=chat_id(ANN, "b"), role=Role.ASSISTANT, since=iso(START + 5)) == [6]
        assert await seqs(chat=chat_id(ANN, "unknown")) == []


# -- pages -------------------------------------------------------------------------------------------------------------


async def test_pages_hold_each_result_once_while_messages_come(tmp_path: Path, embedding_model_dir: Path) -> None:
    """New matches, better ones than all before, come between two pages; older ones get their vectors between them."""
    async with recalling(tmp_path, embedding_model_dir) as here:
        texts = [f"Our garden has {number} apple trees and a pond with fish." for number in range(30)]
        await here.say(texts[:15], "main")
        await here.say(texts[15:], "дача", embedded=False)
        search = searching(here.store, here.embedder)
        filters = HistoryFilters(user=UserId("local"))
        page = await search.search("apple trees in the garden", filters, limit=7)
        total, found = page.total, places(page)
        while page.next is not None:
            await here.say(["Our apple trees in the garden!"] * 3, "main")
            page = await search.search("apple trees in the garden", filters, limit=7, page=read_cursor(page.next))
            assert page.total == total
            found += places(page)
        again = await search.search("apple trees in the garden", filters, limit=100)
    assert len(found) == len(set(found)) == total == 30
    assert again.total > 30
    assert again.results[0].snippet == "Our apple trees in the garden!"


async def test_pages_go_on_after_a_restart_without_what_came_later(tmp_path: Path) -> None:
    """The list itself is gone then; the name of the page still says where it ended."""
    async with running_store(tmp_path) as store:
        await store.writer.run(messages.append, [new(f"needle {'hay ' * number}", user=ANN) for number in range(25)])
        first = await searching(store).search("needle", HistoryFilters(user=ANN), limit=10)
        await store.writer.run(messages.append, [new("needle needle", user=ANN) for _ in range(5)])
        assert first.next is not None
        restarted = searching(store)
        found = places(first)
        cursor: str | None = first.next
        while cursor is not None:
            page = await restarted.search("needle", HistoryFilters(user=ANN), limit=10, page=read_cursor(cursor))
            found += places(page)
            cursor = page.next
    assert sorted(found) == sorted(f"main#{seq}" for seq in range(1, 26))


async def test_a_page_by_number_and_one_too_far(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await store.writer.run(messages.append, [new(f"needle {'hay ' * number}", user=ANN) for number in range(25)])
        search = searching(store)
        everything = await every_page(search, "needle", HistoryFilters(user=ANN), 10)
        second = await search.search("needle", HistoryFilters(user=ANN), limit=10, page=2)
        far = await search.search("needle", HistoryFilters(user=ANN), limit=10, page=4)
    assert places(second) == everything[10:20]
    assert (far.results, far.next, far.total, far.total_is_exact) == ((), None, 25, True)


async def test_lists_are_forgotten_in_turn(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await store.writer.run(messages.append, [new(f"word{number % 20} and hay", user=ANN) for number in range(200)])
        search = searching(store)
        for number in range(20):
            assert len(await every_page(search, f"word{number}", HistoryFilters(user=ANN), 4)) >= 10
        assert len(search._lists) == KEPT_LISTS


async def test_a_full_list_tells_that_there_is_more(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await store.writer.run(
            messages.append, [new(f"needle {number}", user=ANN, chat=f"c{number}") for number in range(DEPTH + 5)]
        )
        found = await searching(store).search("needle", HistoryFilters(user=ANN), limit=2 * DEPTH)
    assert (found.total, found.total_is_exact, found.next) == (DEPTH, False, None)


@pytest.mark.parametrize("query", ["spare key of the garden house", "запасной ключ от дачи"])
async def test_the_words_of_messages_are_compared_one_by_one(
    tmp_path: Path, embedding_model_dir: Path, query: str
) -> None:
    async with recalling(tmp_path, embedding_model_dir) as here:
        await here.say(["The spare key of the garden house lies under the pot.", "Запасной ключ от дачи под горшком."])
        search = searching(here.store, here.embedder)
        found = await search.search(query, HistoryFilters(user=UserId("local")))
        (listed,) = search._lists.values()
    assert places(found)[0] == ("main#1" if query.isascii() else "main#2")
    assert None not in [each.token_score for each in listed.entries]
    assert "tokens" in found.timings_ms


async def test_the_newer_of_two_that_say_the_same_comes_first(tmp_path: Path, embedding_model_dir: Path) -> None:
    async with recalling(tmp_path, embedding_model_dir) as here:
        await here.say(["Код от калитки — 4815.", "Совсем другое дело.", "Код от калитки: 4815", "И ещё что-то."])
        search = searching(here.store, here.embedder)
        found = await search.search("код калитки", HistoryFilters(user=UserId("local")))
    assert places(found)[:2] == ["main#3", "main#1"]


# -- bad input, and parts that are missing -----------------------------------------------------------------------------


@pytest.mark.parametrize("query", ["", " \n", "…!? — «»", "\0\0", "\ud800", "\u202e\u202d", "\u0301", "^*-+:(){}<>"])
async def test_a_query_without_a_word_finds_nothing_and_says_so(tmp_path: Path, query: str) -> None:
    async with running_store(tmp_path) as store:
        await store.writer.run(messages.append, [new("some words", user=ANN)])
        found = await searching(store).search(query, HistoryFilters(user=ANN))
    assert (found.results, found.words, found.total, found.next) == ((), (), 0, None)


STRANGE = {
    "near": "NEAR(peanuts Anna, 2)",
    "prefix": "peanuts* ^Anna",
    "minus": "-peanuts Anna",
    "column": "content: peanuts scope: c1 Anna",
    "quotes": 'Anna"s "peanuts\'',
    "sql": "'; DROP TABLE messages; -- peanuts Anna",
    "nul": "Anna\0 peanuts\0",
    "surrogate": "Anna \ud83d peanuts",
    "emoji": "Anna 🎂 peanuts 👨‍👩‍👧",
    "mixed": "Anna 花生 peanuts миндаль",
    "operators": "Anna AND peanuts OR NOT",
    "long": "Anna peanuts " + "and something else entirely " * 715,
}


@pytest.mark.parametrize("query", STRANGE.values(), ids=STRANGE)
async def test_no_query_is_syntax(tmp_path: Path, embedding_model_dir: Path, query: str) -> None:
    async with recalling(tmp_path, embedding_model_dir) as here:
        await fill(here)
        found = await searching(here.store, here.embedder).search(query, HistoryFilters(user=ANN))
        by_words = await searching(here.store).search(query, HistoryFilters(user=ANN))
    assert "home#1" in places(found)
    assert "home#1" in places(by_words)
    assert by_words.degraded == ("embedding_off",)


async def test_a_very_long_message_is_shown_around_its_match(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await store.writer.run(messages.append, [new("сено, " * 8_000 + "иголка, " + "сено, " * 8_000, user=ANN)])
        found = await searching(store).search("иголки", HistoryFilters(user=ANN))
    (only,) = found.results
    assert len(only.snippet) < 400
    assert [only.snippet[begin:end] for begin, end in only.marks] == ["иголка"]


@pytest.mark.parametrize(
    ("state", "code"),
    [
        (EmbedderState.NO_MODEL, "embedding_no_model"),
        (EmbedderState.LOADING, "embedding_loading"),
        (EmbedderState.REEMBEDDING, "reembedding:"),
        (EmbedderState.OFF, "embedding_off"),
    ],
)
async def test_without_vectors_it_goes_by_words_and_says_so(tmp_path: Path, state: EmbedderState, code: str) -> None:
    embedder = Embedder(SystemClock(), enabled=True)
    embedder.enter(state)
    async with running_store(tmp_path) as store:
        await store.writer.run(messages.append, [new(text, user=ANN, chat=chat) for chat, text in SAID])
        found = await searching(store, embedder).search("калитка", HistoryFilters(user=ANN))
    assert places(found)[0] == "home#2"
    assert found.degraded[0].startswith(code)


async def test_with_a_damaged_vector_table_it_goes_by_words(tmp_path: Path, embedding_model_dir: Path) -> None:
    async with recalling(tmp_path, embedding_model_dir) as here:
        await fill(here)
        await here.store.database.run(
            lambda connection: connection.execute("DELETE FROM vec_messages_vector_chunks00").fetchall()
        )
        found = await searching(here.store, here.embedder).search("калитка", HistoryFilters(user=ANN))
    assert places(found)[0] == "home#2"
    assert found.degraded == ("vector_search_failed",)


async def test_with_a_damaged_index_of_words_it_goes_by_meaning(tmp_path: Path, embedding_model_dir: Path) -> None:
    async with recalling(tmp_path, embedding_model_dir) as here:
        await fill(here)
        await here.store.database.run(
            lambda connection: connection.execute(
                "UPDATE messages_fts_data SET block = zeroblob(40) WHERE id > 10"
            ).fetchall()
        )
        found = await searching(here.store, here.embedder).search("Код от калитки", HistoryFilters(user=ANN))
    assert places(found)[0] == "home#2"
    assert found.degraded == ("text_search_failed",)


async def test_no_log_line_holds_a_query_or_a_message(tmp_path: Path) -> None:
    """The fixture of all tests looks at the log."""
    async with running_store(tmp_path) as store:
        await store.writer.run(messages.append, [new(f"some {CANARY}", user=ANN)])
        found: Sequence[object] = (await searching(store).search(CANARY, HistoryFilters(user=ANN))).results
    assert len(found) == 1


async def test_the_list_of_an_earlier_search_shows_no_row_of_what_was_forgotten(tmp_path: Path) -> None:
    """Pages are read from one list; so is a search that is asked again within the same second."""
    async with running_store(tmp_path) as store:
        await store.writer.run(messages.append, [new("The ladder stands behind the shed", user=ANN, chat="home")])
        search, tool, again = searching(store), forgetter(store, tmp_path), Cursor(page=1, last_rowid=1, asked_at=0)
        assert places(await search.search("ladder", HistoryFilters(user=ANN), page=again)) == ["home#1"]
        await tool.forget(await tool.find("home#1", ANN))
        assert places(await search.search("ladder", HistoryFilters(user=ANN), page=again)) == []
