"""Forgetters on real stores, and a search for bytes, for tests."""

from pathlib import Path
from typing import Any

from klaw.actor.clock import SystemClock, iso
from klaw.actor.threads import Threads
from klaw.domain.message import Message, MessageKind, Role
from klaw.domain.names import UserId, chat_id
from klaw.domain.summary import NewSummary
from klaw.memory.forget.forget import Forgetter
from klaw.store.kinds import facts, messages, summaries
from klaw.store.kinds.summaries import copy_path
from klaw.store.store import Store
from tests.support.facts import fact
from tests.support.stores import START, new
from tests.support.topics import archive
from tests.support.turns import record


async def _nothing_runs(_user: UserId, _run: str) -> None:
    pass


def forgetter(store: Store, root: Path, *, reindexing: bool = False) -> Forgetter:
    return Forgetter(
        writer=store.writer,
        readers=store.readers,
        data_dir=root,
        workspace=root / "workspace",
        clock=SystemClock(),
        files=Threads("files", 2),
        reindexing=lambda: reindexing,
        changed=lambda: None,
        stop_run=_nothing_runs,
        backups=root / "no backups",
    )


def holding(root: Path, *texts: str) -> dict[str, int]:
    """Files below a folder with one of the texts, in whatever case and form, and how often."""
    found = {}
    for path in root.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            forms = {form.encode() for text in texts for form in (text, text.lower(), text.upper())}
            count = sum(data.count(form) for form in forms)
            if count:
                found[path.relative_to(root).as_posix()] = count
    return found


async def secret_past(store: Store, root: Path, text: str, *, user: str = "anna") -> Message:
    """A chat in which a message is quoted wherever that can be. Returns the message."""
    chat = chat_id(UserId(user), "main")

    async def say(content: str, **values: Any) -> Message:
        (stored,) = await store.writer.run(messages.append, [new(content, user=user, **values)])
        return stored.message

    await say("What a fine day for a walk in the garden")
    secret = await say(text)
    turn = record(secret)
    turn.receipt["quote"] = {"deep": [f"it was: {text}"]}
    answer = new(f"You said: {text} Is that so?", user=user, role=Role.ASSISTANT)
    await store.writer.run(messages.append, [answer], turn)
    await say("", role=Role.ASSISTANT, kind=MessageKind.TOOL_CALL, calls=[{"id": "1", "arguments": {"query": text}}])
    await say(f"found: {text}", role=Role.TOOL, kind=MessageKind.TOOL_RESULT)
    last = await say("And what about the weather tomorrow?")
    for draft in (1, 2):
        summary = NewSummary(
            user=UserId(user),
            chat=chat,
            segment=0,
            first_seq=1 if draft == 1 else 4,
            last_seq=3 if draft == 1 else 5,
            text=f"Part {draft}: somebody said {text}",
            tokens=10,
            model="test/m",
            created_at=iso(START + draft),
        )
        made = await store.writer.run(summaries.put, summary)
        path = root / copy_path(chat, made.number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(made.text)
    (topic,) = await archive(store, [secret.rowid, secret.rowid + 1], user=user)
    await archive(store, [last.rowid], user=user)
    put = fact(text[:1_500], user=user, message=secret.id, chat=chat, topic=str(topic.id))
    await store.writer.run(facts.put, put, "new")
    if len(text) < 1_500:
        gone = fact(f"Gone: {text}", user=user)
        await store.writer.run(facts.put, gone, "new")
        await store.writer.run(facts.remove, UserId(user), gone.id, iso(START + 9))
    return secret


def files_of(root: Path) -> dict[Path, bytes]:
    """Every file below a folder, but for the shared memory of readers."""
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file() and "shm" not in path.name}


def lose_database(root: Path) -> None:
    for path in root.glob("klaw.db*"):
        path.unlink()
