"""Variants: a replaced message is nowhere but where somebody asks for it, going back brings all of it back, and a
database made from the logs is the same."""

import tempfile
from pathlib import Path
from typing import Any

import apsw
import attrs
import pytest
import trio
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from klaw.config.schema import AttachmentsConfig
from klaw.domain.message import Message, MessageKind, NewMessage, Role
from klaw.domain.names import UserId, chat_id
from klaw.domain.summary import NewSummary
from klaw.errors import CannotReplace, SourceForgotten
from klaw.store.engine import meta
from klaw.store.kinds import chats, facts, messages, pending, summaries, topics
from klaw.store.kinds.summaries import copy_path
from klaw.store.kinds.variants import branches, replace
from klaw.store.kinds.variants.replace import Wish
from klaw.store.search import vectors as stored_vectors
from klaw.store.store import Store
from tests.support.facts import fact
from tests.support.forgetting import forgetter, holding
from tests.support.reindexing import DIMENSION, MODEL, differing, digests_of, run, unit
from tests.support.stores import new, running_store
from tests.support.topics import AT, archive, flaws_of
from tests.support.turns import record

ANNA = UserId("anna")
MAIN = chat_id(ANNA, "main")
LIMITS = AttachmentsConfig()


class Talk:
    """A chat of Anna's, in which every message has a word of its own."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.number = 0

    def word(self, kind: str) -> str:
        self.number += 1
        return f"{kind}слово{self.number}"

    async def say(self) -> Message:
        (asked,) = await self.store.writer.run(messages.append, [new(self.word("q"), user="anna")])
        await self.answer(asked.message)
        return asked.message

    async def answer(self, asked: Message) -> Message:
        turn = record(asked)
        answer = new(self.word("a"), user="anna", role=Role.ASSISTANT, turn=turn.id)
        (stored,) = await self.store.writer.run(messages.append, [answer], turn)
        return stored.message

    async def edit(self, seq: int) -> Message:
        edited = new(self.word("q"), user="anna")
        done = await self.vary(edited, which=seq, edits=True)
        assert await self.pending() == [edited.content]
        await self.answer(done)
        return done

    async def again(self, seq: int) -> None:
        done = await self.vary(new("", user="anna"), which=seq)
        assert await self.pending() == [done.content]
        await self.answer(done)

    async def show(self, seq: int, number: int) -> None:
        await self.store.writer.run(replace.vary, new("", user="anna"), Wish(which=seq, number=number), LIMITS, 0)

    async def vary(self, said: NewMessage, **wish: Any) -> Message:
        done = await self.store.writer.run(replace.vary, said, Wish(**wish), LIMITS, 0)
        assert done is not None
        return done.message

    async def page(self, *, variants: bool = False) -> branches.VariantsPage:
        return await self.store.readers.run(branches.page, MAIN, 200, None, None, variants=variants)

    async def texts(self) -> list[str]:
        return [each.content for each in (await self.page()).messages]

    async def pending(self) -> list[str]:
        session = await self.store.readers.run(messages.session, MAIN)
        assert session is not None
        found = await self.store.readers.run(messages.pending, MAIN, session.segment_start, 50)
        return [each.content for each in found]


def found_by_words(connection: apsw.Connection) -> set[str]:
    query = "SELECT m.content FROM messages_fts AS f JOIN messages AS m ON m.rowid = f.rowid WHERE messages_fts MATCH ?"
    words = [content for (content,) in connection.execute("SELECT content FROM messages_whole WHERE content <> ''")]
    return {text for word in words for (text,) in connection.execute(query, (f'"{word}"',))}


async def check(talk: Talk) -> None:
    """Only what is active is in the window, full text, topics, facts, exports and counts."""
    store, active = talk.store, await talk.texts()
    session = await store.readers.run(messages.session, MAIN)
    assert session is not None
    window = await store.readers.run(pending.newest_of_segment, MAIN, session.segment_start, 500)
    assert [each.content for each in window] == active[-len(window) :] if window else active == []
    assert await store.readers.run(found_by_words) == set(active)
    kept = await store.readers.run(messages.kept_after, MAIN, 0, 500)
    assert [each.content for each in kept if each.content] == active
    assert (await store.readers.run(chats.count_said, ANNA, [MAIN]))[MAIN] == len(active)
    ids = {each.id for each in kept}
    assert {each.message for each in await store.readers.run(facts.of_user, ANNA)} <= ids
    rowids = {each.rowid for each in kept}
    for topic in await store.readers.run(topics.of_user, ANNA):
        assert set(await store.readers.run(topics.members, ANNA, topic.id)) <= rowids
    assert len(await store.readers.run(stored_vectors.rowids, 0, 1 << 60, 500)) <= len(active)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["say", "say", "edit", "again", "show", "show", "fact", "topic", "restart"]),
        st.integers(0, 1 << 16),
        st.integers(0, 1 << 16),
    ),
    min_size=3,
    max_size=14,
)


@settings(
    max_examples=25,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
@given(STEPS)
def test_whatever_is_replaced_and_brought_back(steps: list[tuple[str, int, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        trio.run(_play, Path(folder), steps)
        assert flaws_of(Path(folder) / "klaw.db") == {}
        before = digests_of(Path(folder) / "klaw.db")
        assert differing(run(Path(folder))) == set()
        assert digests_of(Path(folder) / "klaw.db") == before


async def _play(root: Path, steps: list[tuple[str, int, int]]) -> None:
    """Beside the store every version of the chat is kept as the list of its texts, the last shown one last."""
    versions: list[list[str]] = [[]]
    number = 0
    while steps is not None:
        async with running_store(root) as store:
            talk = Talk(store)
            talk.number = number
            if number == 0:
                await stored_vectors.prepare(store.writer, MODEL, DIMENSION)
                await talk.say()
                versions = [await talk.texts()]
            rest = await _steps(talk, versions, steps)
            number = talk.number
        if rest is None:
            return
        steps = rest


async def _steps(
    talk: Talk, versions: list[list[str]], steps: list[tuple[str, int, int]]
) -> list[tuple[str, int, int]] | None:
    """Carries out steps up to a restart; returns those behind it."""
    for place, (step, one, two) in enumerate(steps):
        page = await talk.page()
        own = [each for each in page.messages if each.role is Role.USER]
        chosen = own[one % len(own)]
        at = next(at for at, each in enumerate(page.messages) if each is chosen)
        now = versions[-1]
        if step == "say":
            await talk.say()
            versions[-1] = await talk.texts()
        elif step == "edit":
            await talk.edit(chosen.seq)
            versions.append(await talk.texts())
            assert versions[-1][:at] == now[:at]
            assert len(versions[-1]) == at + 2
        elif step == "again":
            await talk.again(page.messages[at + one % 2].seq)
            versions.append(await talk.texts())
            assert versions[-1][: at + 1] == now[: at + 1]
            assert len(versions[-1]) == at + 2
        elif step == "show" and page.variants:
            seq = sorted(page.variants)[one % len(page.variants)]
            shown_now = page.variants[seq]
            wanted = 1 + two % shown_now.count
            before = [each.content for each in page.messages if each.seq < seq]
            others = list(
                dict.fromkeys(
                    each[len(before)]
                    for each in sorted(versions, key=_age)
                    if each[: len(before)] == before and len(each) > len(before)
                )
            )
            assert len(others) == shown_now.count
            await talk.show(seq, wanted)
            expected = next(
                each for each in reversed(versions) if each[: len(before) + 1] == [*before, others[wanted - 1]]
            )
            versions.append(versions.pop(next(at for at, each in enumerate(versions) if each is expected)))
            assert await talk.texts() == expected
        elif step == "fact" and not await talk.store.readers.run(facts.same_text, ANNA, f"of {chosen.content}", "-"):
            made = fact(f"of {chosen.content}", user="anna", message=chosen.id, turn=None)
            await talk.store.writer.run(facts.put, made, "new")
        elif step == "topic":
            free = [each.rowid for each in page.messages[at:]]
            taken = await talk.store.readers.run(topics.topics_of, ANNA, free)
            if free := [rowid for rowid in free if rowid not in taken]:
                await archive(talk.store, free)
        elif step == "restart":
            return steps[place + 1 :]
        rows = [(each.rowid, unit(each.rowid)) for each in (await talk.page()).messages]
        await talk.store.writer.run(stored_vectors.store, MODEL, rows)
        await check(talk)
    return None


def _age(version: list[str]) -> list[int]:
    """Texts are numbered as they are said."""
    return [int(text.partition("слово")[2]) for text in version]


async def test_what_was_made_of_a_replaced_message_comes_back_with_it(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        talk = Talk(store)
        first, second = [await talk.say() for _ in range(2)]
        old = fact("Anna lives in Kazan.", user="anna", message=first.id, turn=None)
        await store.writer.run(facts.put, old, "new")
        newer = fact("Anna lives in Omsk.", user="anna", message=second.id, turn=None)
        await store.writer.run(facts.put, newer, "new", supersedes=old.id)
        asked = await talk.edit(second.seq)
        assert [each.text for each in await store.readers.run(facts.of_user, ANNA)] == ["Anna lives in Kazan."]
        await talk.show(asked.seq, 1)
        assert [each.text for each in await store.readers.run(facts.of_user, ANNA)] == ["Anna lives in Omsk."]
        await talk.show(second.seq, 2)
        assert [each.text for each in await store.readers.run(facts.of_user, ANNA)] == ["Anna lives in Kazan."]
    assert differing(run(tmp_path)) == set()


async def test_a_summary_of_a_replaced_message_goes_and_the_one_before_stands_again(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        talk = Talk(store)
        asked = [await talk.say() for _ in range(3)]
        for first, last, over in ((1, 2, ()), (3, 4, ()), (1, 5, (1, 2))):
            made = NewSummary(
                user=ANNA, chat=MAIN, segment=0, first_seq=first, last_seq=last, text=f"{first} to {last}",
                tokens=3, model="m", created_at=AT,
            )  # fmt: skip
            await store.writer.run(summaries.put, made, supersedes=over)
        path = tmp_path / copy_path(MAIN, 3)
        path.parent.mkdir(parents=True)
        path.write_text("1 to 5")
        await talk.edit(asked[1].seq)
        assert [each.text for each in await store.readers.run(summaries.live, MAIN, 0)] == ["1 to 2"]
        assert not path.exists()
    assert differing(run(tmp_path)) == set()


async def test_what_is_made_meanwhile_of_replaced_messages_is_not_stored(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        talk = Talk(store)
        asked = await talk.say()
        as_of = await store.readers.run(meta.last_entry)
        await talk.edit(asked.seq)
        with pytest.raises(SourceForgotten):
            await store.writer.run(facts.put, fact("late", user="anna", message=asked.id), "new", as_of=as_of)


@pytest.mark.parametrize("secret", ["qsecretpassphraseq", "щсекретнаяфразащ"])
@pytest.mark.parametrize("shows_old", [False, True])
async def test_forgetting_a_message_takes_its_variants(tmp_path: Path, secret: str, *, shows_old: bool) -> None:
    async with running_store(tmp_path) as store:
        talk = Talk(store)
        before = await talk.say()
        (asked,) = await store.writer.run(messages.append, [new(f"My secret is {secret} one", user="anna")])
        await talk.answer(asked.message)
        edited = new(f"My secret is {secret} two", user="anna")
        await talk.vary(edited, which=asked.message.seq, edits=True)
        (answered,) = await store.readers.run(messages.pending, MAIN, 1, 5)
        await talk.answer(answered)
        if shows_old:
            await talk.show(answered.seq, 1)
        tool = forgetter(store, tmp_path)
        named = asked.message if shows_old else answered
        proof = await tool.forget(await tool.find(f"main#{named.seq}", ANNA), with_facts=True, everywhere=True)
        assert not any(proof.after.rows.values())
        assert (await talk.texts())[:2][0] == before.content
    assert holding(tmp_path, secret) == {}
    digests = digests_of(tmp_path / "klaw.db")
    assert differing(run(tmp_path)) == set()
    assert digests_of(tmp_path / "klaw.db") == digests


async def test_forgetting_a_chat_takes_what_is_replaced(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        talk = Talk(store)
        asked = await talk.say()
        await talk.edit(asked.seq)
        await talk.again(3)
        tool = forgetter(store, tmp_path)
        await tool.forget(await tool.find("chat:main", ANNA), with_facts=True, everywhere=True)
    assert holding(tmp_path, "слово") == {}
    assert differing(run(tmp_path)) == set()


async def test_a_quote_in_a_replaced_answer_loses_the_words(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        talk = Talk(store)
        secret = "The code of the gate is four seven one one"
        (asked,) = await store.writer.run(messages.append, [new(secret, user="anna")])
        await talk.answer(asked.message)
        (later,) = await store.writer.run(messages.append, [new("Which code?", user="anna")])
        turn = record(later.message)
        answer = new(f"You said: {secret}. Right?", user="anna", role=Role.ASSISTANT, turn=turn.id)
        await store.writer.run(messages.append, [answer], turn)
        await talk.edit(later.message.seq)
        tool = forgetter(store, tmp_path)
        await tool.forget(await tool.find(asked.message.id, ANNA), with_facts=True, everywhere=True)
    assert holding(tmp_path, secret) == {}
    assert differing(run(tmp_path)) == set()


async def test_a_fresh_start_belongs_to_the_branch_in_which_it_was_made(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        talk = Talk(store)
        first = await talk.say()
        await store.writer.run(
            messages.append, [new("", user="anna", role=Role.SYSTEM, kind=MessageKind.SESSION_BREAK)]
        )
        await talk.say()
        asked = await talk.edit(first.seq)
        session = await store.readers.run(messages.session, MAIN)
        assert session is not None
        assert (session.segment, session.segment_start) == (0, asked.seq)
        await talk.show(asked.seq, 1)
        session = await store.readers.run(messages.session, MAIN)
        assert session is not None
        assert (session.segment, session.segment_start) == (1, 3)
    assert differing(run(tmp_path)) == set()


async def test_what_cannot_be_replaced_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        talk = Talk(store)
        asked = await talk.say()
        before = await talk.texts()
        for seq in (2, 99):
            with pytest.raises(CannotReplace):
                await talk.vary(new("x", user="anna"), which=seq, edits=True)
        with pytest.raises(CannotReplace):
            await talk.show(asked.seq, 2)
        with pytest.raises(CannotReplace):
            await talk.vary(new("x", user="bert"), which=asked.seq, edits=True)
        assert await talk.texts() == before


async def test_an_edit_that_is_sent_twice_is_one_edit(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        talk = Talk(store)
        asked = await talk.say()
        edited = new("again", user="anna", id="once")
        for _ in range(2):
            await talk.vary(edited, which=asked.seq, edits=True)
        (variant,) = (await talk.page()).variants.values()
        assert attrs.astuple(variant) == (2, 2)
