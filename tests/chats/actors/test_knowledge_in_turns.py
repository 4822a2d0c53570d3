"""Chats that are bound to knowledge bases: a whole Klaw with a scripted model. English and Russian alike."""

import json
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from klaw.domain.context_used import KEY, ContextUsed, read
from klaw.domain.events import ApprovalAsked, TextStreamed
from klaw.domain.message import Message
from klaw.domain.names import LOCAL_USER, UserId
from klaw.store.kinds import chats
from klaw.store.kinds.knowledge import bases, sources
from tests.support.asking import receipt_lines
from tests.support.chats_world import World, world
from tests.support.forgetting import holding
from tests.support.kb import Doors
from tests.support.knowledge import AT, base_with, bound_to
from tests.support.llm_server import Recorded, Reply, Text, Tool, Wait, text_reply, tool_reply
from tests.support.waiting import HANG_S, until

LEASE = {
    "аренда.pdf": [
        "Срок аренды квартиры составляет одиннадцать месяцев с даты подписания договора.",
        "Залог за квартиру равен двум месячным платежам и возвращается через десять дней.",
        "Штраф за просрочку арендной платы: полтора процента в день. Ещё есть штраф за шум после одиннадцати вечера.",
    ],
    "boat.pdf": [
        "The boat is insured against fire and theft; the insurance ends in May 2027.",
        "The mooring fee is 120 euros a month. The harbour office opens at seven.",
        "The engine oil of the boat is changed every hundred hours by the mechanic Olaf.",
    ],
}
CASES = {
    "ru": ("Какой срок аренды квартиры?", "составляет одиннадцать месяцев с даты подписания", "аренда.pdf", 1),
    "en": ("When does the insurance of the boat end?", "the insurance ends in May 2027", "boat.pdf", 1),
}


async def ready(w: World, **fields: Any) -> Any:
    made = await base_with(w.app.core.writer, "Документы", LEASE, **fields)
    await bound_to(w.app.core.writer, made)
    return made


async def ask(w: World, text: str, number: int = 1) -> Message:
    await w.send(text)
    assert (await w.turn(number)).status == "done"
    return await w.reply(number)


def used_of(message: Message) -> ContextUsed:
    found = read(message.metadata)
    assert found is not None
    return found


async def given(w: World) -> ContextUsed:
    found = read((await w.receipt()).receipt)
    assert found is not None
    return found


async def scalar(w: World, query: str, *bindings: Any) -> Any:
    return await w.app.core.readers.run(lambda connection: connection.execute(query, bindings).get)


@pytest.mark.parametrize("language", CASES)
async def test_passages_stand_before_the_question_and_false_citations_are_taken_out(
    tmp_path: Path, language: str
) -> None:
    question, quote, name, page = CASES[language]
    async with world(tmp_path) as w:
        await ready(w)
        w.llm.replies.append(text_reply(f"«{quote}» [1]. ", "And [7]. ", "«so it is written in the other book» [1]"))
        answer = await ask(w, question)
        system, *_, asked = w.llm.requests[0].messages
        assert "knowledge bases" in system["content"]
        assert f"\n[1] {name}, page {page}, Глава {page}\n> " in asked["content"]
        assert asked["content"].endswith(f"\n\n{question}")
        assert quote not in system["content"]
        # What was streamed is what the model wrote; what is stored is checked.
        streamed = "".join(event.text for event in w.watcher.events if isinstance(event, TextStreamed))
        assert "[7]" in streamed
        assert answer.content == f"«{quote}» [1]. And. «so it is written in the other book»"
        assert (await w.turn(1)).citations_removed == 2
        # The message knows what its marks mean, the receipt has the texts too.
        told = used_of(answer)
        first = told.passages[0]
        assert (first.number, first.name, first.cited, first.text) == (1, name, True, "")
        kept = await given(w)
        assert quote in kept.passages[0].text
        assert (kept.query, kept.removed, kept.uncited, kept.nothing) == (question, 2, False, "")
        assert kept.passages[0].first_page == page
        assert kept.passages[0].start is not None
        report = w.app.core.metrics.report()
        assert [report[f"klaw_knowledge_citations_{each}_total"]["value"] for each in ("kept", "removed")] == [1, 2]
        lines = "\n".join(receipt_lines(attrs.asdict(await w.receipt())))
        assert f"{name}, page {page}" in lines
        assert "2 invalid citations removed" in lines
        # Nothing of a passage became a message.
        assert await scalar(w, "SELECT count(*) FROM messages WHERE content LIKE '%<passages>%'") == 0
        assert await scalar(w, "SELECT count(*) FROM kb_used WHERE cited = 1 AND seq = ?", answer.seq) == 1


async def test_the_last_pairs_are_shown_without_their_marks_and_history_survives(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        await ready(w)
        w.llm.respond = lambda _request: text_reply("Одиннадцать месяцев [1].")
        for number in range(1, 8):
            await ask(w, f"Какой срок аренды квартиры, вопрос {number}?", number)
        said = w.contents()
        assert len(said) == 11
        assert said[0] == "Какой срок аренды квартиры, вопрос 2?"
        assert said[1] == "Одиннадцать месяцев."
        record = await w.receipt()
        assert record.receipt["window"]["messages"] == 10
        assert record.receipt["recall"]["guard"] == "search"
        assert record.receipt["recall"]["scope"]["end_seq"] == 3
    async with world(tmp_path) as w:  # after a restart
        page = await w.app.chats.before(w.chat, 1 << 40, 4)
        assert [each.content for each in page][-1] == "Одиннадцать месяцев [1]."
        assert used_of(page[-1]).passages[0].name == "аренда.pdf"
        w.llm.respond = lambda _request: text_reply("Да [1].")
        await ask(w, "Какой залог за квартиру?")
        assert len(w.contents()) == 11


SUMMARY = "Пользователь спрашивал о сроках аренды."


async def test_a_summary_stands_for_what_left_the_pairs(tmp_path: Path) -> None:
    def respond(request: Recorded) -> Reply:
        told = SUMMARY if "You keep the memory" in request.messages[0]["content"] else "Одиннадцать месяцев [1]."
        return text_reply(told, usage=None)

    async with world(tmp_path, summaries={"leftOutTokens": 100, "maxTokens": 200}) as w:
        await ready(w)
        w.llm.respond = respond
        for number in range(1, 21):
            await ask(w, f"Какой срок аренды квартиры, вопрос номер {number}?", number)
        with trio.fail_after(HANG_S):
            await w.app.memory.summarizer.wait_idle()
        await ask(w, "Какой залог за квартиру?", 21)
        asked = [each for each in w.llm.requests if "You keep the memory" not in each.messages[0]["content"]][-1]
        assert SUMMARY in asked.messages[0]["content"]
        receipt = (await w.receipt()).receipt
        (summary,) = receipt["summaries"][-1:]
        assert len(asked.messages) <= 12
        # Nothing between summary and window that recall could not find.
        assert receipt["recall"]["guard"] == "search"
        assert receipt["recall"]["scope"]["end_seq"] == receipt["window"]["first_seq"]
        assert summary["last_seq"] < receipt["window"]["first_seq"]


@pytest.mark.parametrize(
    ("first", "listed", "second", "wanted"),
    [
        (
            "Какие штрафы и залог есть в договоре аренды?",
            "Есть два:\n1. Штраф за просрочку [1]\n2. Залог за квартиру [2]",
            "а что насчёт второго?",
            "Залог за квартиру",
        ),
        (
            "What does the boat cost and need?",
            "Two things:\n- mooring fee [1]\n- engine oil change [2]",
            "Tell me more about the second",
            "engine oil change",
        ),
    ],
)
async def test_a_follow_up_is_searched_with_what_it_refers_to(
    tmp_path: Path, first: str, listed: str, second: str, wanted: str
) -> None:
    async with world(tmp_path) as w:
        await ready(w)
        w.llm.replies.extend([text_reply(listed), text_reply("Yes [1]."), text_reply("ok")])
        await ask(w, first)
        await ask(w, second, 2)
        kept = await given(w)
        assert kept.follows == "pair"
        assert kept.query == f"{first}\n{wanted}\n{second}"
        words = {"Залог за квартиру": "равен двум месячным", "engine oil change": "mechanic Olaf"}
        assert words[wanted] in "".join(each.text for each in kept.passages)
        # A follow-up of a follow-up still knows what it is about.
        await ask(w, "почему?" if "вт" in second else "why?", 3)
        assert first in (await given(w)).query


async def test_the_model_may_put_a_follow_up_into_words_of_its_own(tmp_path: Path) -> None:
    async with world(tmp_path, kb={"rewrite": True}) as w:
        await ready(w)
        w.llm.replies.extend(
            [
                text_reply("Есть залог [1]."),
                text_reply(json.dumps({"question": "Когда возвращается залог за квартиру?"})),
                text_reply("Через десять дней [1]."),
                text_reply("not json"),
                text_reply("no"),
                text_reply("Да [1]."),
            ]
        )
        await ask(w, "Какой залог за квартиру?")
        await ask(w, "А когда он возвращается?", 2)
        kept = await given(w)
        assert (kept.follows, kept.query) == ("model", "Когда возвращается залог за квартиру?")
        assert "standalone" not in w.contents()[-1]
        assert (await w.receipt()).usage["calls"] == 2
        await ask(w, "А почему он такой?", 3)  # the model fails at it: by the rule
        kept = await given(w)
        assert kept.follows == "pair"
        assert kept.query.endswith("А почему он такой?")


async def test_nothing_relevant_is_said_and_small_talk_searches_nothing(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        await ready(w)
        w.llm.respond = lambda _request: text_reply("I do not know [1].")
        answer = await ask(w, "Who won the chess olympiad in Havana?")
        assert "Nothing in the knowledge bases" in w.contents()[-1]
        kept = await given(w)
        assert kept.passages == ()
        assert kept.nothing in ("no_passages", "too_far")
        assert answer.content == "I do not know."
        await ask(w, "Спасибо, понятно!", 2)
        assert w.contents()[-1] == "Спасибо, понятно!"
        assert (await given(w)).nothing == "no_content"


async def test_an_answer_without_marks_is_noted(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        await ready(w)
        await ask(w, "Какой залог за квартиру?")
        assert (await given(w)).uncited
        assert "refers to none of them" in "\n".join(receipt_lines(attrs.asdict(await w.receipt())))


async def test_a_member_who_was_removed_is_told_that_the_base_is_gone(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        boris = UserId("boris")
        shared = await base_with(
            w.app.core.writer, "Общая", {"x.pdf": ["Пароль от сейфа 4815."]}, boris, members={LOCAL_USER: "viewer"}
        )
        await bound_to(w.app.core.writer, shared)
        await ask(w, "Какой пароль от сейфа?")
        assert "4815" in w.contents()[-1]
        await w.app.core.writer.run(bases.share, boris, shared.id, AT, {LOCAL_USER: None})
        await ask(w, "Какой пароль от нашего сейфа?", 2)
        assert "4815" not in w.contents()[-1]
        assert "not there any more" in w.contents()[-1]
        kept = await given(w)
        assert (kept.gone, kept.nothing, kept.passages) == ((shared.id,), "no_bases", ())


@pytest.mark.parametrize("ends", ["deleted", "removed", "not shared"])
async def test_a_turn_under_way_keeps_nothing_of_a_base_that_goes(tmp_path: Path, ends: str) -> None:
    secret, answering = "Пароль от сейфа на даче 4815162342.", trio.Event()
    async with world(tmp_path) as w:
        boris = UserId("boris")
        shared = await base_with(w.app.core.writer, "Общая", {"x.pdf": [secret]}, boris, members={LOCAL_USER: "viewer"})
        stays = await base_with(w.app.core.writer, "Своя", {"y.pdf": ["Пароль от погреба на даче 2342."]})
        await bound_to(w.app.core.writer, shared, stays)
        w.llm.replies.append(Reply(steps=(Text("Вот "), Wait(answering), Text("он [1]."))))
        await w.send("Какой пароль от сейфа на даче?")
        await until(lambda: w.llm.requests)
        assert secret in w.contents()[-1]
        match ends:
            case "deleted":
                done = await Doors(w.app, "")("kb_delete", base=shared.id, user=boris, dry_run=False)
                assert (done["removed"], done["still_held"]) == (True, [])
            case "removed":
                (source,) = await w.app.core.readers.run(lambda c: sources.of_base(c, boris, shared.id))
                await Doors(w.app, boris)("kb_remove", source=source.id, dry_run=False)
            case _:
                await w.app.core.writer.run(bases.share, boris, shared.id, AT, {LOCAL_USER: None})
        answering.set()
        assert (await w.turn(1)).status == "done"
        texts = {each.name: each.text for each in (await given(w)).passages}
        assert texts == {"x.pdf": "", "y.pdf": "Пароль от погреба на даче 2342."}
    found = holding(w.app.core.paths.data_dir, secret)
    assert not {path for path in found if path.startswith("turns/")}, found
    assert (ends == "not shared") == bool(found)


async def test_a_text_of_several_documents_is_shown_once_with_all_places(tmp_path: Path) -> None:
    text = "Пароль от сейфа на даче 4815162342."
    async with world(tmp_path) as w:
        copies = {"x.pdf": [text], "y.pdf": ["О погоде и о природе.", text.replace(" ", "\n", 2).upper()]}
        one, other = [await base_with(w.app.core.writer, name, copies) for name in ("Одна", "Другая")]
        await bound_to(w.app.core.writer, one, other)
        w.llm.replies.append(text_reply("4815162342 [1]."))
        answer = await ask(w, "Какой пароль от сейфа на даче?")
        (passage,) = (await given(w)).passages
        places = [(each.name, each.first_page, each.base) for each in (passage, *passage.also)]
        assert sorted(places) == sorted(
            (name, page, base.id) for name, page in (("x.pdf", 1), ("y.pdf", 2)) for base in (one, other)
        )
        told = f"{passage.name}, page {passage.first_page}, {passage.heading} (the same: "
        assert f"[1] {told}" in w.contents()[-1]
        assert told in "\n".join(receipt_lines(attrs.asdict(await w.receipt())))
        assert used_of(answer).passages[0].also == passage.also
        assert await scalar(w, "SELECT count(DISTINCT document_id) FROM kb_used WHERE cited") == 4
        searched = await Doors(w.app, "")("kb_search", base=one.id, query="Пароль от сейфа на даче")
        assert [len(each["also"]) for each in searched["passages"]] == [1]
        # What is said of a document that goes is not said any more; the text stays, as it is of another one, too.
        goes = passage.also[0]
        done = await Doors(w.app, "")("kb_delete", base=goes.base, dry_run=False)
        assert done["cited"] == [{"chat": "main", "seq": answer.seq, "cited": True}]
        kept = (await given(w)).passages[0]
        stays = [each for each in (passage, *passage.also) if each.base != goes.base]
        assert [each.base for each in (kept, *kept.also) if each.base != goes.base] == [each.base for each in stays]
        assert kept.text == ("" if passage.base == goes.base else passage.text)


async def test_a_chat_that_is_not_bound_is_as_before(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        await base_with(w.app.core.writer, "Документы", LEASE)
        w.llm.replies.append(text_reply("As in [1], [2024] and [7]."))
        answer = await ask(w, "Какой залог за квартиру?")
        assert w.contents() == ["Какой залог за квартиру?"]
        assert answer.content == "As in [1], [2024] and [7]."
        assert KEY not in (await w.receipt()).receipt
        assert KEY not in answer.metadata


async def test_what_is_written_after_reading_passages_needs_the_users_word(tmp_path: Path) -> None:
    async with world(tmp_path, tools_for_model=True, tools={"exec": {"approvalSeconds": 0.05}}) as w:
        await ready(w)
        call = Tool("c1", "memory_save", json.dumps({"text": "Залог равен двум платежам", "category": "other"}))
        w.llm.replies.extend([tool_reply(call), text_reply("Готово [1].")])
        await ask(w, "Какой залог за квартиру?")
        assert [event.approval.tool for event in w.watcher.events if isinstance(event, ApprovalAsked)] == [
            "memory_save"
        ]
        assert await scalar(w, "SELECT count(*) FROM facts") == 0


async def test_binding_survives_until_it_is_changed(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        made = await ready(w)
        await ask(w, "Какой залог за квартиру?")
        found = await w.app.core.readers.run(chats.get, LOCAL_USER, w.chat)
        assert found is not None
        assert found.bases == (made.id,)
        await w.app.core.writer.run(chats.bind, LOCAL_USER, w.chat, [], AT)
        await ask(w, "Какой срок аренды квартиры?", 2)
        assert "<passages>" not in w.contents()[-1]
