"""Topics with everything real: the server's parts, the embedding model, a language model over HTTP or the local one."""

import json
import time

import pytest
import trio

from klaw.actor.clock import SystemClock
from klaw.domain.message import Role
from klaw.domain.names import LOCAL_USER
from klaw.errors import EmbeddingUnavailable
from klaw.memory.embed.embedder import SLOW_CAPACITY, Embedder
from klaw.store.kinds import inventory, messages, topic_vectors, topics
from klaw.store.kinds.topic_changes import TOPIC
from klaw.store.search.history_search import HistoryFilters
from tests.support.inside import inside
from tests.support.llm_server import serve_llm, text_reply
from tests.support.server import write_home
from tests.support.stores import START, new
from tests.support.waiting import HANG_S, until

TALKS = (
    (
        "When does the train to Tver leave?",
        "At 9:40 from platform 3.",
        "Book two seats by the window, please.",
        "Done.",
    ),
    ("Бабушкин пирог: сколько нужно вишни?", "Полкило вишни и стакан сахара.", "А муки?", "Два стакана муки."),
    ("My bicycle has a flat tyre.", "The repair shop on Lesnaya is open until seven.", "ok", "Good luck!"),
)


async def talk(app, talks=TALKS) -> None:
    """A session each, long ago."""
    for number, texts in enumerate(talks):
        made = [
            new(
                text, user="local", role=(Role.USER, Role.ASSISTANT)[place % 2], at=START + number * 90_000 + place * 20
            )
            for place, text in enumerate(texts)
        ]
        await app.core.writer.run(messages.append, made)


def splits(request):
    """An LLM that takes each session for one topic and merges none; to people it says ok."""
    told = request.body["messages"]
    if "You divide a conversation" in told[0]["content"]:
        lines = [line for line in told[-1]["content"].split("\n") if line.startswith("#")]
        summary = lines[0].split(": ", 1)[1]
        return text_reply(json.dumps({"topics": [{"summary": summary, "start_msg_id": 1, "end_msg_id": len(lines)}]}))
    if "list of conversation topics" in told[0]["content"]:
        return text_reply(json.dumps({"should_merge": False, "reason": "", "topic": 0, "merged_summary": ""}))
    return text_reply("ok")


async def test_sessions_become_topics_that_are_found_and_come_into_prompts(tmp_path, embedding_model_dir):
    """By meaning and by words; with ``topics.inject`` = ``auto`` and without a model that chooses, a question shares no
    word with what it is about."""
    async with serve_llm() as llm:
        llm.respond = splits
        home = write_home(
            tmp_path,
            llm=llm.url,
            models=embedding_model_dir.parent,
            topics={"enabled": True, "inject": "auto", "timeBudgetMs": 20_000},
            autoRag={"timeBudgetMs": 20_000},
        )
        async with inside(home) as here:
            app = here.app
            await here.until(lambda: app.memory.embedder.status.state == "ready")
            await talk(app)
            await here.embedded()
            await here.until(lambda: app.memory.archivist.nudge() or app.memory.metrics.extracted.value == 3)
            with trio.fail_after(HANG_S):
                while await app.core.readers.run(topics.unfinished, with_facts=False, after=0, limit=9):
                    app.memory.archivist.nudge()
                    await app.memory.archivist.wait_idle()
            assert await app.core.readers.run(topic_vectors.count_unembedded) == 0
            assert await app.core.readers.run(inventory.faults, TOPIC) == {}
            for query, expected in (
                ("Which recipe with cherries did we talk about?", "Бабушкин пирог"),
                ("вишня", "Бабушкин пирог"),
                ("railway tickets", "train to Tver"),
            ):
                page = await app.memory.topic_search.search(query, HistoryFilters(user=LOCAL_USER))
                assert expected in page.hits[0].topic.summary, query
                assert page.hits[0].cosine is not None
                assert page.degraded == ()
            # A chat goes on meanwhile, and its running session is left alone.
            turn = await here.ask("hello")
            assert turn.status == "done"
            app.memory.archivist.nudge()
            await app.memory.archivist.wait_idle()
            assert app.memory.archivist.status.unarchived == 2
            for question, wanted, others in (
                ("At what time does my railway journey to Tver begin?", "At 9:40 from platform 3.", "вишни"),
                ("Сколько ягод нужно для бабушкиного пирога?", "Полкило вишни", "platform"),
            ):
                turn = await here.ask(question, chat="today")
                system = next(each for each in llm.requests if each.last_user == question).messages[0]["content"]
                assert wanted in system, turn.receipt["topics"]
                assert others not in system
                told = turn.receipt["topics"]
                assert (told["chosen_by"], told["degraded"]) == ("search", [])
                (shown,) = (each for each in told["candidates"] if each["decision"] == "chosen")
                assert shown["cosine"] >= 0.60
            turn = await here.ask("Спасибо!", chat="today")
            assert turn.receipt["topics"]["asked"] == "no_content"
            question = "At what time does the train to Tver leave?"
            stranger = await here.ask(question, chat="today", user="boris")
            assert stranger.receipt["topics"]["asked"] == "no_topics"
            (asked,) = (each for each in llm.requests if each.last_user == question)
            assert "9:40" not in str(asked.body)


async def test_the_whole_life_cycle_with_the_local_model(tmp_path, embedding_model_dir, local_llm_dir):
    """Whatever the quality of its summaries: no crash, full coverage, metrics filled."""
    pytest.importorskip("xllamacpp")
    home = write_home(
        tmp_path,
        models=local_llm_dir.parent,
        routing={"default": "local/smollm2-135m-instruct"},
        localModel={"contextTokens": 2048, "threads": 1, "parallel": 1},
        topics={"enabled": True},
    )
    file = home / "config" / "engine.yaml"
    config = json.loads(file.read_text())
    file.write_text(json.dumps({**config, "llm": {"maxReplyTokens": 64, "temperature": 0}}))
    begin = time.monotonic()
    async with inside(home) as here:
        app = here.app
        await talk(app, TALKS[1:2])

        async def all_done() -> bool:
            app.memory.archivist.nudge()
            await app.memory.archivist.wait_idle()
            run = app.core.readers.run
            left = await run(topics.count_unarchived)
            return not (left or await run(topics.unfinished, with_facts=False, after=0, limit=9))

        await until(all_done)
        found = await app.core.readers.run(topics.of_user, LOCAL_USER)
        assert sum(topic.messages for topic in found) == 4
        assert all(topic.summary.strip() for topic in found)
        assert await app.core.readers.run(inventory.faults, TOPIC) == {}
        report = app.core.metrics.report()
        assert report["klaw_topics_extracted_total"]["value"] >= 1
        assert report["klaw_splitter_duration_seconds"]["count"] == 1
        assert report["klaw_topics_size_chars"]["count"] >= 1
        page = await app.memory.topic_search.search("вишня", HistoryFilters(user=LOCAL_USER))
        assert page.hits
    print(f"{time.monotonic() - begin:.0f} s", [topic.summary for topic in found])


async def test_the_slow_lane_of_the_embedder_is_bounded_and_answers(tmp_path, embedding_model_dir):
    home = write_home(tmp_path, models=embedding_model_dir.parent)
    async with inside(home) as here:
        embedder = here.app.memory.embedder
        await here.until(lambda: embedder.status.state == "ready")
        made: list[object] = []

        async def one(text: str) -> None:
            try:
                made.append(len(await embedder.passage_in_background(text)))
            except EmbeddingUnavailable as error:
                made.append(error.code)

        with trio.fail_after(HANG_S):
            async with trio.open_nursery() as nursery:
                for number in range(SLOW_CAPACITY + 2):
                    nursery.start_soon(one, f"слово {number} " * 400)
        assert sorted(map(str, made)) == ["1536"] * SLOW_CAPACITY + ["busy"] * 2
    with pytest.raises(EmbeddingUnavailable):
        await Embedder(SystemClock(), enabled=False).passage_in_background("text")
