"""What a restart does with questions that have no answer: recent ones are answered, old and stopped ones are not."""

import json
from datetime import datetime, timedelta

import trio

from tests.support.llm_server import Hang, Reply, Text, echo_reply, error_reply, serve_llm
from tests.support.server import served, write_home
from tests.support.talking import talking
from tests.support.waiting import HANG_S

HANGING = Reply(steps=(Text("half an ans"), Hang()))


async def test_question_pending_at_a_kill_is_answered_after_the_restart(tmp_path):
    """In the middle of an answer and in the debounce: both chats get one answer, without a client asking again."""
    async with serve_llm() as llm, served(write_home(tmp_path, llm=llm.url)) as server:
        llm.replies.append(HANGING)
        async with talking(server.url) as talk:
            await talk.send("What is the code of the gate?", "english")
            await llm.wait_for_requests(1)
            llm.respond = echo_reply
            await talk.send("Какой код у калитки?", "русский")
            await server.kill()
            with trio.fail_after(HANG_S):
                await llm.requests[0].gone.wait()
            await server.start()
            for chat, question in (("english", "What is the code of the gate?"), ("русский", "Какой код у калитки?")):
                await talk.settled(1, chat)
                history = await talk.history(chat)
                assert [(m.role, m.content) for m in history] == [
                    ("user", question),
                    ("assistant", f"echo: {question}"),
                ]


async def test_old_and_stopped_questions_are_left_alone(tmp_path):
    """A question older than recovery.answerPendingSeconds and a stopped one are not answered; a fresh one is."""
    async with serve_llm() as llm, served(write_home(tmp_path, llm=llm.url)) as server:
        llm.respond = lambda _request: error_reply(503)
        async with talking(server.url) as talk:
            for chat in ("old", "fresh"):
                await talk.send(f"question of the {chat} chat", chat)
                await talk.until(lambda chat=chat: [each for each in talk.errors if each.chat == chat])
            llm.replies.append(HANGING)
            count = len(llm.requests)
            await talk.send("question of the stopped chat", "stopped")
            await llm.wait_for_requests(count + 1)
            await talk.send("/stop", "stopped")
            assert (await talk.settled(1, "stopped")).status == "stopped"
        await server.terminate()
        _make_older(server, "old", hours=2)
        llm.requests.clear()
        llm.respond = echo_reply
        await server.start()
        async with talking(server.url) as talk:
            await talk.settled(1, "fresh")
            # The old chats come first in the list of what to recover, so their time has passed.
            assert [request.last_user for request in llm.requests] == ["question of the fresh chat"]
            assert (await talk.settled(1, "stopped")).status == "stopped"
            assert [message.role for message in await talk.history("old")] == ["user"]
            # It is left alone, not lost: the next message brings it up.
            receipt = await talk.ask("are you there?", "old")
            assert (receipt.first_seq, receipt.last_seq) == (1, 2)
            said = json.dumps(llm.requests[-1].messages)
            assert "question of the old chat" in said


def _make_older(server, chat, *, hours):
    """Move a chat's messages into the past, in its log; the database is rebuilt from the logs."""
    (folder,) = [path for path in (server.data / "conversations").iterdir() if path.name.endswith(chat)]
    for path in folder.glob("*.jsonl"):
        records = [json.loads(line) for line in path.read_text().splitlines()]
        for record in records:
            moved = datetime.fromisoformat(record["created_at"]) - timedelta(hours=hours)
            record["created_at"] = moved.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))
    for path in server.data.glob("klaw.db*"):
        path.unlink()
