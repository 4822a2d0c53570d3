"""Links, pipes and devices where prompt files are read: left out and named, and nobody waits for them."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from klaw.agent import workspace as workspace_module
from klaw.agent.workspace import Workspace
from klaw.domain.names import LOCAL_USER, UserId
from klaw.domain.prompt_files import AGENT_FILES
from klaw.runs.start_run import read_heartbeat
from klaw.toolbox.builtin.skills import Catalogue
from tests.config.unit.test_safe_open import TRAPS
from tests.support.chats_world import world

ANNA = UserId("anna")
FILES = (*AGENT_FILES, "users/anna/USER.md", "users/anna/HEARTBEAT.md", "skills/light/SKILL.md")


def home(tmp_path: Path) -> Path:
    """A workspace with what must never stand in Anna's prompt beside it."""
    (tmp_path / "data" / "users" / "anna").mkdir(parents=True)
    for folder in ("users/anna", "users/bob", "skills/light", "memory"):
        (tmp_path / "workspace" / folder).mkdir(parents=True)
    (tmp_path / "workspace" / "users" / "bob" / "USER.md").write_text("secret of bob")
    (tmp_path / "data" / "tokens.json").write_text("secret of all")
    return tmp_path / "workspace"


@pytest.mark.parametrize("name", [*TRAPS, "link to another user"])
def test_no_prompt_file_is_read_through_a_trap(tmp_path: Path, name: str) -> None:
    folder = home(tmp_path)
    make: Callable[[Path], None] = dict.get({key: made for key, (made, _) in TRAPS.items()}, name) or (
        lambda path: path.symlink_to(folder / "users" / "bob" / "USER.md")
    )
    for file in FILES:
        make(folder / file)
    make(tmp_path / "data" / "users" / "anna" / "core_memory.json")
    read = Workspace(folder, tmp_path / "data", Catalogue(folder))
    assert read.skills is not None
    read.skills.refresh()

    fixed = read.read(ANNA)

    assert "secret" not in fixed.system_prompt + fixed.core_memory
    assert not fixed.core_memory
    for file in (*AGENT_FILES, "USER.md", "core_memory.json"):
        assert any(problem.startswith(f"{file} was left out: it ") for problem in fixed.problems), file
    assert read_heartbeat(folder, ANNA) is None
    assert not read.skills.known.skills


@pytest.mark.parametrize("link", ["users", "users/anna"])
def test_a_folder_that_is_a_link_is_not_entered(tmp_path: Path, link: str) -> None:
    folder = home(tmp_path)
    other = tmp_path / "other"
    (folder / "users").rename(other)
    (other / "anna" / "USER.md").write_text("secret")
    (other / "anna" / "HEARTBEAT.md").write_text("secret")
    (folder / link).parent.mkdir(exist_ok=True)
    (folder / link).symlink_to(other / link.removeprefix("users").lstrip("/"))

    fixed = Workspace(folder, tmp_path / "data").read(ANNA)

    assert "secret" not in fixed.system_prompt
    assert fixed.problems == ("USER.md was left out: it lies behind a link, or is not a folder",)
    assert read_heartbeat(folder, ANNA) is None


def test_a_heartbeat_list_that_is_too_long_is_cut_not_left_out(tmp_path: Path) -> None:
    folder = home(tmp_path)
    (folder / "HEARTBEAT.md").write_text("Полить цветы\n" * 100_000)
    assert str(read_heartbeat(folder, LOCAL_USER)).startswith("Полить цветы")


def test_what_changes_is_read_again_and_what_stays_is_not(tmp_path: Path) -> None:
    folder = home(tmp_path)
    read = Workspace(folder, tmp_path / "data")
    (folder / "SOUL.md").write_text("one")
    assert read.read(ANNA).system_prompt == "one"
    (folder / "SOUL.md").write_text("two")
    assert read.read(ANNA).system_prompt == "two"
    (folder / "SOUL.md").unlink()
    (folder / "SOUL.md").symlink_to("/etc/passwd")
    assert "root" not in read.read(ANNA).system_prompt


async def test_a_disk_that_does_not_answer_holds_back_neither_turns_nor_others(
    autojump_clock: trio.testing.MockClock, tmp_path: Path
) -> None:
    """Threads that hang for ever are left behind, also when more come than there are."""
    hang = trio.Event()
    token = trio.lowlevel.current_trio_token()

    class Hanging(Workspace):
        def read(self, user: UserId) -> workspace_module.PromptTexts:
            trio.from_thread.run(hang.wait, trio_token=token)
            return super().read(user)

    read = Hanging(home(tmp_path), tmp_path / "data")
    autojump_clock.autojump_threshold = 0.05
    async with trio.open_nursery() as nursery:
        found: list[workspace_module.PromptTexts] = []

        async def ask() -> None:
            found.append(await read.fetch(ANNA))

        for _ in range(5):
            nursery.start_soon(ask)
    assert [each.problems for each in found] == [("the workspace does not answer: its files may be older",)] * 5
    read._last[ANNA] = workspace_module.PromptTexts(system_prompt="of before", core_memory="", problems=())
    assert (await read.fetch(ANNA)).system_prompt == "of before"
    hang.set()


async def test_a_pipe_holds_back_neither_turns_nor_the_end(tmp_path: Path) -> None:
    folder = home(tmp_path)
    for name in ("SOUL.md", "USER.md", "MEMORY.md", "HEARTBEAT.md", "memory/2026-01-01.md"):
        os.mkfifo(folder / name)
    os.mkfifo(tmp_path / "data" / "core_memory.json")
    async with world(tmp_path) as w:
        await w.send("hi")
        await w.turn(1)
        problems = (await w.receipt()).receipt["problems"]
    assert [each.split()[0] for each in problems] == ["SOUL.md", "USER.md", "core_memory.json"]


def test_core_memory_is_bounded_like_the_others(tmp_path: Path) -> None:
    folder = home(tmp_path)
    (tmp_path / "data" / "core_memory.json").write_text(json.dumps({"a": "x" * 300_000}))
    fixed = Workspace(folder, tmp_path / "data").read(LOCAL_USER)
    assert fixed.problems == ("core_memory.json was left out: it is larger than 262144 bytes",)
