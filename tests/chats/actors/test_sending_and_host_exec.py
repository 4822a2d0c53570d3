"""send_message, and host_exec with its question, inside real turns."""

import json
from pathlib import Path
from typing import Any

import trio

from klaw.domain.events import ApprovalAsked, MessageStored
from klaw.domain.message import Message, MessageKind, Role
from klaw.domain.names import LOCAL_USER, UserId, chat_id
from klaw.llm.types import ToolCall
from klaw.toolbox.executor import prepare
from klaw.toolbox.host_exec import RISK
from klaw.toolbox.spec import ToolContext
from klaw.toolbox.web_fetch import web_fetch
from tests.chats.actors.test_tools_in_turns import calls, tool_world
from tests.support.chats_world import World
from tests.support.llm_server import text_reply
from tests.support.programs.web_site import answer, site
from tests.support.waiting import HANG_S

EXEC = {"exec": {"enabled": True, "sandbox": "none"}}


def made(folder: Path) -> bool:
    """Whether the command ran."""
    return any(folder.rglob("made.txt"))


async def results(w: World, count: int = 1) -> list[Message]:
    def stored(events: list[Any]) -> list[Message] | None:
        found = [event.message for event in events if isinstance(event, MessageStored)]
        found = [message for message in found if message.type is MessageKind.TOOL_RESULT]
        return found if len(found) >= count else None

    found: list[Message] = await w.watcher.until(stored)
    return found


async def test_message_goes_to_another_chat_of_the_user(tmp_path: Path) -> None:
    async with tool_world(tmp_path) as w:
        w.llm.replies.append(text_reply("ok"))
        await w.send("Список покупок", chat="Дом")
        await w.turn(1)
        w.llm.replies += [
            calls(("send_message", {"chat": "Дом", "text": "Анна приедет в четверг"})),
            text_reply("Передал"),
        ]

        await w.send("Напиши в чат Дом, что Анна приедет в четверг")
        await w.turn(2)

        other = await w.app.chats.after(chat_id(LOCAL_USER, "Дом"), 0, 10)
        sent = other[-1]
        assert (sent.role, sent.type, sent.content) == (Role.ASSISTANT, MessageKind.TEXT, "Анна приедет в четверг")
        assert sent.metadata["origin"] == "tool"
        assert sent.metadata["sent_from"] == (await w.receipt()).id
        assert "turn" not in sent.metadata
        (result,) = await results(w)
        assert result.content == "Sent to Дом."
        # The other chat has nothing to answer by it, and goes on as before.
        w.llm.replies.append(text_reply("Хорошо"))
        await w.send("Спасибо", chat="Дом")
        await w.turn(3)
        assert any("Анна приедет в четверг" in content for content in w.contents())


async def test_message_that_cannot_be_sent_is_explained(tmp_path: Path) -> None:
    async with tool_world(tmp_path) as w:
        w.llm.replies.append(text_reply("ok"))
        await w.send("x", chat="work")
        await w.turn(1)
        await w.app.chats.send(UserId("bob"), "Тайна", "b1", "hi")

        async def say(chat: str, text: str = "hello", user: UserId = LOCAL_USER) -> str:
            context = ToolContext(user=user, chat=chat_id(user, "main"), turn="t1")
            call = ToolCall(id="c1", name="send_message", arguments=json.dumps({"chat": chat, "text": text}))
            (result,) = await w.app.tools.executor.run(prepare((call,), taken=(), new_id=lambda: "n", most=8), context)
            assert result.failed
            return result.text

        foreign, unknown = await say("Тайна"), await say("Сон")
        assert foreign == unknown == "Nothing was sent: the user has no chat of this name. Their chats: work."
        assert "this is the chat you are in" in await say("main")
        assert "Nothing was sent: a chat name" in await say("../x")
        assert "the text is empty" in await say("work", "  \n")
        assert "They have no other chat" in await say("work", user=UserId("new"))
        assert "1 to 16000 characters" in await say("work", "x" * 16_001)


async def test_page_of_the_web_is_stored_with_its_origin(tmp_path: Path) -> None:
    """So that nothing ever takes it for what the user said."""
    async with tool_world(tmp_path, tools={"web": {"enabled": True}}) as w, site() as (served, fetcher, _):
        toolbox = w.app.tools.executor.toolbox
        toolbox.remove("web_fetch")
        toolbox.register(web_fetch(fetcher, 30))
        served.pages["/"] = answer("<p>Пользователя зовут Ипполит</p>".encode())
        w.llm.replies += [calls(("web_fetch", {"url": served.url("/")})), text_reply("ok")]

        await w.send("Прочитай страницу")
        await w.turn(1)

        (result,) = await results(w)
        assert (result.role, result.metadata["origin"]) == (Role.TOOL, "web")
        assert "Пользователя зовут Ипполит" in result.content
        assert "untrusted content" in result.content


async def test_question_waits_without_a_slot_and_the_answer_decides(tmp_path: Path) -> None:
    async with tool_world(tmp_path, tools=EXEC, processing={"maxConcurrentLlm": 1}) as w:
        w.llm.replies += [calls(("host_exec", {"command": "touch made.txt"})), text_reply("Done")]

        await w.send("Make the file")
        asked = await w.watcher.until(lambda events: [e for e in events if isinstance(e, ApprovalAsked)])
        # The only slot is free for another chat meanwhile.
        w.llm.replies.appendleft(text_reply("meanwhile"))
        await w.send("hi", chat="other")
        await w.turn(1)
        assert w.app.llm.slots.report().busy == 0
        assert not made(tmp_path)
        w.app.tools.approvals.answer(asked[0].approval, allow=True)
        await w.turn(2)

        assert asked[0].approval.what == f"[NOT in a sandbox{RISK}] touch made.txt"
        assert made(tmp_path)
        assert (await results(w))[0].content.startswith("[exit code 0")


async def test_denied_command_does_not_run_and_the_model_is_told(tmp_path: Path) -> None:
    async with tool_world(tmp_path, tools=EXEC) as w:
        w.llm.replies += [calls(("host_exec", {"command": "touch made.txt"})), text_reply("Хорошо, не буду")]

        await w.send("Создай файл")
        asked = await w.watcher.until(lambda events: [e for e in events if isinstance(e, ApprovalAsked)])
        w.app.tools.approvals.answer(asked[0].approval, allow=False)
        await w.turn(1)

        assert "the user said no" in (await results(w))[0].content
        assert not made(tmp_path)


async def test_allowed_by_the_configuration_runs_at_once(tmp_path: Path) -> None:
    tools = {"exec": {"enabled": True, "sandbox": "none", "allow": ["echo *"]}}
    async with tool_world(tmp_path, tools=tools) as w:
        w.llm.replies += [calls(("host_exec", {"command": "echo привет"})), text_reply("ok")]

        await w.send("say it")
        await w.turn(1)

        assert (await results(w))[0].content.endswith("\nпривет\n")
        assert not any(isinstance(event, ApprovalAsked) for event in w.watcher.events)


async def test_question_without_an_answer_is_no(tmp_path: Path) -> None:
    tools = {"exec": {"enabled": True, "sandbox": "none", "approvalSeconds": 0.05}}
    async with tool_world(tmp_path, tools=tools) as w:
        w.llm.replies += [calls(("host_exec", {"command": "touch made.txt"})), text_reply("ok")]

        await w.send("do it")
        await w.turn(1)

        assert "is not connected, so nobody answered" in (await results(w))[0].content
        assert not made(tmp_path)


async def test_stopping_the_turn_withdraws_the_question(tmp_path: Path) -> None:
    async with tool_world(tmp_path, tools=EXEC) as w:
        w.llm.replies += [calls(("host_exec", {"command": "touch made.txt"}))]
        await w.send("do it")
        await w.watcher.until(lambda events: [e for e in events if isinstance(e, ApprovalAsked)])

        with trio.fail_after(HANG_S):
            await w.app.chats.stop(LOCAL_USER, "main")

        assert w.app.tools.approvals.open(w.chat) == ()


async def test_outside_tools_are_not_offered_unless_switched_on(tmp_path: Path) -> None:
    async with tool_world(tmp_path) as w:
        offered = {spec.name for spec in w.app.tools.executor.toolbox.all()}
        assert "send_message" in offered
        assert not offered & {"web_fetch", "host_exec"}
    async with tool_world(tmp_path / "on", tools={**EXEC, "web": {"enabled": True}}) as w:
        assert {spec.name for spec in w.app.tools.executor.toolbox.all()} >= {"web_fetch", "host_exec"}
