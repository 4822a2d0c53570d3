"""Commands and their answers are deleted a day later; what they did, and what chats go by, stays."""

from pathlib import Path

from klaw.domain.message import TEMPORARY_S
from klaw.domain.names import LOCAL_USER
from klaw.memory.forget.forget import LOOK_EVERY_S
from klaw.store.kinds import messages, tasks
from tests.support.chats_world import world
from tests.support.forgetting import holding
from tests.support.reindexing import differing, run
from tests.support.scripted import TestClock
from tests.support.stores import START


async def test_commands_go_after_a_day_and_what_they_did_stays(tmp_path: Path) -> None:
    clock = TestClock(START)
    async with world(tmp_path, clock=clock) as w:
        forgetter, read = w.app.memory.forgetter, w.app.core.readers.run
        await w.send("My gate is green")
        await w.turn(1)
        assert "09:00" in await w.command("/remind tomorrow 9:00 Water the quince", 1)
        assert "stub/other" in await w.command("/model stub/other", 2)
        await w.command("/people Quillfeather", 3)
        await w.command("/nonsense", 4)
        clock.at += 60
        await w.send("And the fence is blue")
        await w.turn(2)
        clock.at += TEMPORARY_S - 30
        await w.command("/people Younger", 5)
        assert await forgetter.expire() == LOOK_EVERY_S
        await forgetter.compact_files(vacuum=True)
        assert holding(tmp_path, "/remind", "Quillfeather", "/nonsense", "/model stub") == {}
        assert holding(tmp_path, "/people Younger")

        session = await read(messages.session, w.chat)
        assert session is not None
        assert session.model == "stub/other"
        assert [each.message for each in await read(tasks.of_user, LOCAL_USER)] == ["Water the quince"]
        said = [each.content for each in await w.app.chats.after(w.chat, 0, 99) if each.type == "text"]
        assert said[::2] == ["My gate is green", "And the fence is blue"]
        repeated = await w.send("/people Quillfeather", id=(await read(messages.after, w.chat, 6, 1))[0].id)
        assert repeated.repeated
        clock.at += TEMPORARY_S + 1
        await forgetter.expire()
        await forgetter.compact_files(vacuum=True)
        assert holding(tmp_path, "/people Younger") == {}
    assert differing(run(tmp_path / "data")) == set()
