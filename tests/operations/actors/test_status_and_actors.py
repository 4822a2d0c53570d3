"""The commands, asked of a real server."""

import json
from types import SimpleNamespace
from typing import Any

import trio
from trio.testing import MockClock

from klaw import __version__
from klaw.actor import log as logging
from klaw.actor.supervisor import WINDOW_S, ActorSpec, Vitals
from klaw.app.app import App
from klaw.operations.actors import MAX_TASKS
from tests.conftest import CANARY
from tests.support.admin import ANNA, BORIS, Commands, fail_a_turn, parts_of
from tests.support.asking import ask


async def test_status(app: App, commands: Commands) -> None:
    """Counts, memory, disk, slots, and every degraded part with its text."""
    await fail_a_turn(app, ANNA, "Работа", f"вопрос {CANARY}")
    await fail_a_turn(app, BORIS, "main", "a question")
    status = await ask(commands, "status")
    assert status["version"] == __version__
    assert status["counts"] == {"users": 2, "chats": 2, "messages": 2, "turns": 2} | {
        "topics": 0,
        "facts": 0,
        "people": 0,
        "tasks": 0,
        "bases": 0,
        "documents": 0,
        "documents_waiting": 0,
        "documents_failed": 0,
        "passages": 0,
    }
    assert status["schema"] == app.core.store.opened.schema
    assert status["address"] == "127.0.0.1:8181"
    assert status["rss_bytes"] > 10 << 20
    assert status["uptime_s"] >= 0
    assert status["llm"]["slots"]["granted"] == 2
    assert status["llm"]["local"]["state"] == "missing"
    assert status["embedder"]["state"] == "off"
    assert status["coverage"]["uncovered"] == 0
    assert status["disk"]["free_bytes"] > 0
    assert status["disk"]["commit_log_bytes"] > 0
    assert [threads["name"] for threads in status["threads"]] == ["files", "tool files", "prompt files"]
    assert "klaw models pull" in next(each["text"] for each in status["degraded"] if each["code"] == "no_llm")
    assert CANARY not in json.dumps(status, ensure_ascii=False)


async def test_actors(app: App) -> None:
    """Every actor of the supervisor is in the tree, and the connections are below the gateway."""
    await fail_a_turn(app, ANNA, "main", "hi")
    session = {"id": "c1", "user": "anna", "peer": "loopback", "since": 1.0, "frames_out": 2, "outbox": 0}
    answer = await ask(Commands(parts_of(app, session)), "actors")
    found = {node["name"]: node for node in walk(answer["tree"])}
    assert {report.name for report in app.core.supervisor.report()} <= set(found)
    assert found["store.writer"]["mailbox"]["handled"] >= 2
    assert found["chat anna:main"]["state"] == "running"
    assert found["connection c1"]["frames_out"] == 2
    assert found["llm.slots"]["total"] == app.core.config.processing.max_concurrent_llm
    json.dumps(answer)


def walk(node: dict[str, Any]) -> list[dict[str, Any]]:
    return [node, *(below for child in node["children"] for below in walk(child))]


async def test_tasks_show_where_everything_waits(commands: Commands) -> None:
    """Names and places in the code; no local variables."""
    secret = CANARY
    answer = await ask(commands, "tasks")
    text = json.dumps(answer, ensure_ascii=False)
    assert "store.writer" in text
    assert '"klaw/actor/mailbox.py:' in text
    assert '"trio/_core/' in text
    assert "Mailbox.receive" in text
    assert answer["shown"] > 3
    assert answer["left_out"] == 0
    assert secret not in text


async def test_tasks_are_bounded(commands: Commands) -> None:
    async with trio.open_nursery() as nursery:
        for _ in range(MAX_TASKS + 20):
            nursery.start_soon(trio.sleep_forever)
        answer = await ask(commands, "tasks")
        assert answer["shown"] == MAX_TASKS
        assert answer["left_out"] >= 20
        nursery.cancel_scope.cancel(reason="the test is over")


async def test_log_level_is_read_and_set(commands: Commands) -> None:
    before = logging.level()
    try:
        assert await ask(commands, "log", level="warning") == {"level": "warning"}
        assert await ask(commands, "log") == {"level": "warning"}
    finally:
        logging.set_level(before)


async def test_health_pings_the_writer(app: App, commands: Commands) -> None:
    answer = await ask(commands, "health")
    assert answer["state"] == "degraded"  # there is no model
    assert answer["writer_ping_ms"] >= 0
    assert answer["failed_actors"] == []


async def test_health_is_ok_when_nothing_is_wrong(app: App) -> None:
    class Well:
        def problems(self) -> dict[str, str]:
            return {}

    core = SimpleNamespace(health=Well(), supervisor=app.core.supervisor)
    parts = SimpleNamespace(core=core, readers=app.readers, writer=app.writer)
    assert (await ask(Commands(parts), "health"))["state"] == "ok"


async def test_a_stuck_writer_is_failing(app: App, quick_clock: MockClock) -> None:
    class Stuck:
        ping = staticmethod(trio.sleep_forever)

    answer = await ask(Commands(SimpleNamespace(core=app.core, readers=app.readers, writer=Stuck())), "health")
    assert (answer["state"], answer["writer_ping_ms"]) == ("failing", None)


async def test_a_failed_actor_is_named(app: App, commands: Commands, quick_clock: MockClock) -> None:
    async def crash(_vitals: Vitals, _started: object) -> None:
        raise RuntimeError

    await app.core.supervisor.start(ActorSpec(name="doomed", run=crash))
    await trio.sleep(WINDOW_S)
    assert (await ask(commands, "health"))["failed_actors"] == ["doomed"]
    await app.core.supervisor.stop("doomed", "the test is over")
