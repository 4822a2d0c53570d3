"""Every format end to end: what is stored, that a second import adds nothing, and a newer export only what is new."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from klaw.domain.message import MessageKind
from klaw.domain.names import LOCAL_USER, chat_id
from klaw.imports import claude, gemini, openclaw, telegram, whatsapp
from klaw.store.kinds import messages, pending, turns
from tests.support.exports import FIRST, SECOND, THIRD, Read, imported, zipped
from tests.support.stores import new, running_store
from tests.support.turns import record

AT = "2024-03-05T10:00:00Z"


def of_claude(folder: Path, *said: str) -> Path:
    found = [{"uuid": f"m{n}", "sender": "human", "text": text, "created_at": AT} for n, text in enumerate(said)]
    return zipped(folder / "data.zip", conversations__json=[{"uuid": "c", "name": "Анна", "chat_messages": found}])


def of_telegram(folder: Path, *said: str) -> Path:
    found = [
        {"id": n, "type": "message", "date_unixtime": "1709632800", "from": "Анна", "from_id": "user7", "text": text}
        for n, text in enumerate(said)
    ]
    path = folder / "result.json"
    path.write_text(json.dumps({"name": "Анна", "type": "personal_chat", "id": 7, "messages": found}))
    return path


def of_whatsapp(folder: Path, *said: str) -> Path:
    path = folder / "WhatsApp Chat with Анна.txt"
    path.write_text("".join(f"05.03.2024, 11:0{n} - Анна: {text}\n" for n, text in enumerate(said)))
    return path


def of_gemini(folder: Path, *said: str) -> Path:
    found = [
        {"header": "Gemini Apps", "title": f"Prompted {text}", "time": f"2024-03-05T10:00:0{n}Z"}
        | {"titleUrl": "https://gemini.google.com/app/0123456789"}
        for n, text in enumerate(said)
    ]
    return zipped(folder / "takeout.zip", **{"Takeout/My Activity/Gemini Apps/MyActivity__json": found[::-1]})


def of_openclaw(folder: Path, *said: str) -> Path:
    sessions = folder / "agents" / "main" / "sessions"
    sessions.mkdir(parents=True, exist_ok=True)
    lines: list[dict[str, Any]] = [{"type": "session", "id": "s"}]
    for n, text in enumerate(said):
        message = {"role": "user", "content": text}
        own = {"id": f"{n}", "parentId": f"{n - 1}" if n else None, "timestamp": AT}
        lines.append({"type": "message", **own, "message": message})
    (sessions / "s.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (sessions / "sessions.json").write_text(json.dumps({"agent:main:main": {"sessionId": "s", "label": "Анна"}}))
    return folder


ZONE = ZoneInfo("Europe/Berlin")
FORMATS: dict[str, tuple[Callable[..., Path], Read, str]] = {
    "claude": (of_claude, claude.read, ""),
    "telegram": (of_telegram, partial(telegram.read, me=None, zone=ZONE), "Анна: "),
    "whatsapp": (of_whatsapp, partial(whatsapp.read, me="Анна", order=None, zone=ZONE, title=None), ""),
    "openclaw": (of_openclaw, openclaw.read, ""),
    "gemini": (of_gemini, partial(gemini.read, zone=ZONE, to_text=str), ""),
}


@pytest.mark.parametrize("source", FORMATS)
async def test_a_second_import_and_a_newer_export(tmp_path: Path, source: str) -> None:
    make, reader, before = FORMATS[source]
    chat = chat_id(LOCAL_USER, "Привет" if source == "gemini" else "Анна")
    people = source in ("telegram", "whatsapp")
    async with running_store(tmp_path / "data") as store:
        read = partial(store.readers.run, messages.after, chat, 0, 100)
        path = make(tmp_path, "Привет", "Hello")
        report = await imported(store, source, path, reader=reader)
        assert (report.chats, report.messages, report.added) == (1, 2, 2)
        first = await read()
        assert [each.content for each in first if each.type is MessageKind.TEXT] == [
            f"{before}Привет",
            f"{before}Hello",
        ]
        assert {each.created_at[:13] for each in first} == {"2024-03-05T10"}
        assert [each.type for each in first[2:]] == ([MessageKind.SESSION_BREAK] if people else [])
        again = await imported(store, source, path, SECOND, reader=reader)
        assert (again.added, again.known, await read()) == (0, 2, first)
        (mine,) = await store.writer.run(messages.append, [new("Who is she?", chat=chat.partition(":")[2])])
        assert mine.message.segment == int(people)
        newer = await imported(store, source, make(tmp_path, "Привет", "Hello", "Пока"), THIRD, reader=reader)
        assert (newer.added, newer.known) == (1, 2)
        assert {each.channel for each in await read()} == {f"import:{FIRST}", f"import:{THIRD}", "test"}


async def test_what_is_said_below_an_imported_chat_is_answered(tmp_path: Path) -> None:
    """The questions in it were answered elsewhere; those of the chat that goes on are Klaw's."""
    path = of_claude(tmp_path, "old question", "another")
    async with running_store(tmp_path / "data") as store:
        await imported(store, "claude", path, reader=claude.read)
        (mine,) = await store.writer.run(messages.append, [new("And now?", chat="Анна")])
        chat, read = mine.message.chat, store.readers.run
        assert await read(messages.pending, chat, 1, 100) == [mine.message]
        assert await read(pending.pending_chats, "2020-01-01") == [chat]
        await store.writer.run(messages.append, [], record(mine.message))
        assert await read(messages.pending, chat, 1, 100) == []
        assert await read(turns.last, chat) is not None
