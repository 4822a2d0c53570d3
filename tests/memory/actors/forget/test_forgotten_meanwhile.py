"""What models are asked about is forgotten before they answer: nothing of it is stored, and it is made again."""

import json
from pathlib import Path

import attrs
import pytest
import trio

from klaw.actor.clock import iso
from klaw.domain.fact import Fact
from klaw.domain.names import UserId
from klaw.domain.summary import NewSummary
from klaw.errors import SourceForgotten
from klaw.memory.facts.facts import Facts
from klaw.memory.topics.fact_extractor import FactExtractor
from klaw.store.engine import meta
from klaw.store.kinds import facts as stored_facts
from klaw.store.kinds import summaries, topics
from tests.memory.actors.test_archivist import LATER, known, off, settled, tell
from tests.support.facts import fact
from tests.support.forgetting import forgetter, holding
from tests.support.llm_server import Wait, text_reply
from tests.support.memory.summaries import CHAT, summarising
from tests.support.people import add, people_drawer
from tests.support.scripted import Scripted, TestClock, archiving, one_topic, split_answer
from tests.support.stores import START, running_store
from tests.support.topics import ANNA, archive, flaws_of, say
from tests.support.waiting import HANG_S

CANARY = "Kanarienvogel8842"
SECRET = {"english": f"The key of the safe is called {CANARY}.", "russian": f"Ключ от сейфа называется {CANARY}."}


@pytest.mark.parametrize("language", SECRET)
async def test_a_summary_that_was_under_way_is_dropped_and_made_anew_at_once(tmp_path: Path, language: str) -> None:
    async with summarising(tmp_path) as s:
        gate = trio.Event()
        s.llm.replies.append(text_reply(f"It was said: {SECRET[language]}", before_head=(Wait(gate),)))
        s.llm.respond = lambda _request: text_reply("About a safe.")
        await s.say(SECRET[language], *(f"And my sister lives in Riga, number {n}. " * 4 for n in range(15)))
        s.summarizer.turn_ended(CHAT)
        with trio.fail_after(HANG_S):
            await s.llm.wait_for_requests(1)
        assert CANARY in s.llm.requests[0].last_user
        tool = forgetter(s.store, tmp_path)
        await tool.forget(await tool.find("main#1", UserId("local")), everywhere=True)
        await tool.forget(await tool.find("main#2", UserId("local")), everywhere=True)  # the answer repeats it
        gate.set()
        with trio.fail_after(HANG_S):
            await s.summarizer.wait_idle()
        made = await s.live()
        assert [each.text for each in made]
        assert all(each.text == "About a safe." for each in made)
        assert all(CANARY not in request.last_user for request in s.llm.requests[1:])
        assert s.summarizer.report()["failing"] == 0  # it did not wait for minutes
        assert holding(tmp_path, CANARY) == {}


async def test_the_writer_refuses_a_summary_of_before_a_forgetting(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        await say(store, SECRET["english"], "and more of it", user="local")
        await say(store, SECRET["russian"], user="boris")
        as_of = await store.readers.run(meta.last_entry)
        summary = NewSummary(
            user=UserId("local"),
            chat=CHAT,
            segment=0,
            first_seq=1,
            last_seq=1,
            text="words",
            tokens=1,
            model="test/m",
            created_at=iso(START),
        )
        tool = forgetter(store, tmp_path)
        await tool.forget(await tool.find("main#1", UserId("boris")), everywhere=True)  # another user's does not matter
        await store.writer.run(summaries.put, summary, as_of=as_of)
        await tool.forget(await tool.find("main#2", UserId("local")), everywhere=True)
        following = attrs.evolve(summary, first_seq=2, last_seq=2)
        with pytest.raises(SourceForgotten):
            await store.writer.run(summaries.put, following, as_of=as_of)
        await store.writer.run(summaries.put, following, as_of=await store.readers.run(meta.last_entry))


class Slow(Scripted):
    """Answers when it is let."""

    def __init__(self, answer) -> None:
        super().__init__(answer)
        self.asked, self.go = trio.Event(), trio.Event()

    async def stream(self, request, on_delta):
        self.asked.set()
        await self.go.wait()
        return await super().stream(request, on_delta)


async def test_topics_of_a_session_that_quotes_what_is_forgotten_are_made_anew(tmp_path: Path) -> None:
    """The forgotten message is in a topic of another chat; only a quotation of it is in the session."""
    async with running_store(tmp_path) as store:
        secret = await tell(store, SECRET["english"], chat="other")
        await archive(store, secret, chat="other", facts=True, consolidated=True)
        await tell(store, f"I said: {SECRET['english']}", "yes", at=START + 10)
        answers = [split_answer((f"quotes {SECRET['english']}", 1, 2)), split_answer(("about a quotation", 1, 2))]
        scripted, clock = Slow(lambda _: answers.pop(0)), TestClock(LATER)
        async with archiving(store, scripted, clock, off()) as (archivist, _):
            archivist.nudge()
            with trio.fail_after(HANG_S):
                await scripted.asked.wait()
            tool = forgetter(store, tmp_path)
            await tool.forget(await tool.find("other#1", ANNA), everywhere=True)
            scripted.go.set()
            await settled(archivist)
            assert await known(store) == []
            assert archivist.backoff.count() == 1
        async with archiving(store, scripted, clock, off()) as (archivist, _):  # its pause is over with a new one
            await settled(archivist)
        assert [topic.summary for topic in await known(store)] == ["about a quotation"]
        assert holding(tmp_path, CANARY) == {}
    assert flaws_of(tmp_path / "klaw.db") == {}


async def test_no_fact_is_drawn_of_what_is_forgotten_meanwhile(tmp_path: Path) -> None:
    class NoFacts:
        async def save(self, *_args, **_values) -> Fact:
            raise AssertionError("nothing is to be saved")

    def answer(request) -> str:
        if request.json_schema is not None and request.json_schema.name == "facts":
            return (
                '{"facts": [{"action": "add", "fact": 0, "text": "' + SECRET["english"] + '", "category": "other",'
                ' "importance": 60, "message": 1}]}'
            )
        return one_topic(request)

    async with running_store(tmp_path) as store:
        rowids = await tell(store, SECRET["english"], "and more of it")
        (topic,) = await archive(store, rowids)
        scripted = Slow(answer)
        drawer = FactExtractor(scripted.asker(), NoFacts(), people_drawer(store), store.readers)  # type: ignore[arg-type]
        async with archiving(store, scripted, TestClock(LATER), off(), on_topic=[drawer]) as (archivist, _):
            archivist.nudge()
            with trio.fail_after(HANG_S):
                await scripted.asked.wait()
            tool = forgetter(store, tmp_path)
            await tool.forget(await tool.find("main#1", ANNA), everywhere=True)
            # What is left of the topic is not to be archived in this test: its facts would be asked for.
            archivist.backoff.fail(("chunk", ("anna:main", rowids[1])), trio.current_time())
            scripted.go.set()
            await settled(archivist)
        assert await store.readers.run(topics.get, ANNA, topic.id) is None
        assert holding(tmp_path, CANARY) == {}


async def test_an_answer_that_quotes_a_kept_fact_is_dropped_when_that_is_forgotten_meanwhile(tmp_path: Path) -> None:
    """The model is shown kept facts and people, and may repeat them: not only the messages count."""
    item = {"action": "add", "fact": 0, "text": SECRET["english"], "category": "other", "importance": 60, "message": 1}
    person = {"action": "update", "person": 1, "into": 0, "name": "", "aliases": [], "message": 1}
    answer = {"facts": [item], "people": [{**person, "relation": f"knows {CANARY}"}]}
    async with running_store(tmp_path) as store:
        (topic,) = await archive(store, await tell(store, "Vera asked about the safe"))
        own = await store.readers.run(topics.read, ANNA, topic.id)
        await add(store, "Vera")
        kept = await store.writer.run(stored_facts.put, fact(SECRET["english"], user="anna"), "new")
        scripted = Slow(lambda _: json.dumps(answer))
        facts = Facts(store.writer, store.readers, off(), TestClock(LATER), lambda: "drawn")
        drawer = FactExtractor(scripted.asker(), facts, people_drawer(store), store.readers)
        refused = []

        async def draw() -> None:
            try:
                await drawer(topic, own)
            except SourceForgotten as error:
                refused.append(error)

        with trio.fail_after(HANG_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(draw)
                await scripted.asked.wait()
                tool = forgetter(store, tmp_path)
                await tool.forget(await tool.find(f"fact:{kept.id}", ANNA), everywhere=True)
                scripted.go.set()
        assert len(refused) == 1
        assert holding(tmp_path, CANARY) == {}
