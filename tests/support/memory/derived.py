"""Turns with tools, as a store keeps them: what each call did is done by the real means. For tests and drills of
forgetting: of every turn all that was made of its message holds the message's word, in other words each."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs

from klaw.actor.clock import iso
from klaw.domain.message import Message, MessageKind, Role, TurnStatus
from klaw.domain.names import UserId
from klaw.domain.task import RunKind, RunStatus
from klaw.store.kinds import core_memory, facts, messages, run_edits, tasks
from klaw.store.store import Store
from tests.support.facts import fact
from tests.support.runs.tasks import run_of, task
from tests.support.stores import START, new
from tests.support.turns import record

TOOLS = ("fact", "core", "task", "run", "sent", "written", "appended", "long", "read")


async def turn_of(
    store: Store, root: Path, word: str, tools: Sequence[str], *, user: str = "anna", cut: str = ""
) -> Message:
    """A message, what tools made of it, and the answer. Returns the message.

    Args:
        store: for all.
        root: the data folder; the workspace is in it.
        word: that all of it holds.
        tools: of ``TOOLS``, in their order.
        user: whose.
        cut: ``failed``: a turn failed before the one that answered; ``killed``: one has no record at all.
    """
    (asked,) = await store.writer.run(messages.append, [new(f"I tell you of {word}, and of nothing else.", user=user)])
    said = asked.message
    done = record(said)
    first = record(said, TurnStatus.FAILED) if cut else done
    made = _Made(store, root, said, word)
    for number, name in enumerate(tools):
        turn = first.id if number == 0 else done.id
        await made.call(turn, f"c{number}", name)
    if cut == "failed":
        await store.writer.run(messages.append, [], first)
    answer = new(f"{word.capitalize()} is kept, dear.", user=user, role=Role.ASSISTANT, turn=done.id)
    await store.writer.run(messages.append, [answer], done)
    return said


class _Made:
    def __init__(self, store: Store, root: Path, said: Message, word: str) -> None:
        self.store, self.said, self.word = store, said, word
        self.workspace = root / "workspace" / "users" / said.user
        self.user = str(said.user)

    async def call(self, turn: str, call: str, name: str) -> None:
        tool, arguments, result = await getattr(self, f"_{name}")(turn)
        told = [{"id": call, "name": tool, "arguments": json.dumps(arguments)}]
        about = {"user": self.user, "turn": turn}
        asks = new("", role=Role.ASSISTANT, kind=MessageKind.TOOL_CALL, calls=told, **about)
        answers = new(result, role=Role.TOOL, kind=MessageKind.TOOL_RESULT, call=call, name=tool, **about)
        await self.store.writer.run(messages.append, [asks])
        await self.store.writer.run(messages.append, [answers])

    async def _fact(self, turn: str) -> Any:
        kept = fact(f"Somebody is called {self.word} there", user=self.user, turn=turn)
        await self.store.writer.run(facts.put, kept, "new")
        return "memory_save", {"text": kept.text}, f"saved as {kept.id}"

    async def _core(self, _turn: str) -> Any:
        value = f"says {self.word}"
        await self.store.writer.run(
            core_memory.change, UserId(self.user), "people", f"k{self.said.rowid}", value, iso(START)
        )
        given = {"section": "people", "key": f"k{self.said.rowid}", "value": value}
        return "memory_core_update", given, f"saved; core memory is now:\n{value}"

    async def _task(self, _turn: str) -> Any:
        made = task(f"t{self.said.rowid}", user=self.user, message=f"Remind of {self.word}")
        await self.store.writer.run(tasks.put, made, "new")
        ran = run_of(made.name, user=self.user, message=made.message, id=f"r{self.said.rowid}t")
        await self._ran(ran)
        return "schedule_add", {"name": made.name, "message": made.message}, "{}"

    async def _run(self, _turn: str) -> Any:
        ran = run_of(
            f"s{self.said.rowid}",
            user=self.user,
            kind=RunKind.SPAWNED,
            message=f"Look for {self.word}",
            id=f"r{self.said.rowid}s",
        )
        await self._ran(ran)
        return "subagent_spawn", {"name": ran.task, "message": ran.message}, json.dumps({"run": ran.id})

    async def _ran(self, run: Any) -> None:
        """A run with a transcript, which saves a fact."""
        await self.store.writer.run(run_edits.begin, run)
        spoken = [
            new(run.message, user=self.user, run=run.id),
            new(f"{self.word} it is, after all", user=self.user, role=Role.ASSISTANT, run=run.id),
        ]
        await self.store.writer.run(run_edits.append_transcript, run, 1, spoken)
        kept = fact(f"A {run.kind} run knows {self.word}", user=self.user, turn=run.id)
        await self.store.writer.run(facts.put, kept, "new")
        ended = attrs.evolve(
            run, status=RunStatus.DONE, ended_at=iso(START + 9), result=f"{self.word} was there", note=f"of {self.word}"
        )
        await self.store.writer.run(run_edits.save, ended)

    async def _sent(self, turn: str) -> Any:
        text = f"Hear of {self.word}"
        values: dict[str, Any] = {"role": Role.ASSISTANT, "sent_from": turn}
        await self.store.writer.run(messages.append, [new(text, user=self.user, chat="other", **values)])
        return "send_message", {"chat": "other", "text": text}, "Sent to other."

    async def _written(self, _turn: str) -> Any:
        path, content = f"notes/{self.said.rowid}.md", f"* {self.word}\n"
        self._write(path, content)
        return "file_write", {"path": path, "content": content}, f"{path}: created, 9 bytes"

    async def _appended(self, _turn: str) -> Any:
        """What is in the file beside it is somebody else's: the file stays, and is named."""
        return (
            "file_write",
            {"path": "notes/all.md", "content": f"* {self.word}\n", "mode": "append"},
            "notes/all.md: appended to",
        )

    async def _long(self, _turn: str) -> Any:
        path = f"tool-output/web-{self.said.rowid}.txt"
        self._write(path, f"{self.word} " * 300)
        cut = "[Cut: these are the first 9 of 300 characters."
        return (
            "web_fetch",
            {"url": f"x://{self.word}"},
            f"{self.word}\n\n{cut} All of it is in the file {path} of the workspace.]",
        )

    async def _read(self, _turn: str) -> Any:
        return "memory_search", {"query": self.word}, f"Nothing of {self.word} was found"

    def _write(self, path: str, content: str) -> None:
        file = self.workspace / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
