"""Exports of other programs, as they make them, and importing them into a store of a test."""

import json
import secrets
import zipfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import trio

from klaw.actor.clock import SystemClock
from klaw.actor.mailbox import Nudge
from klaw.actor.threads import Threads
from klaw.config.paths import Paths
from klaw.config.schema import AttachmentsConfig, EngineConfig
from klaw.imports import chatgpt
from klaw.imports.events import Event, ExportedMessage
from klaw.imports.export_files import OpenedExport, opened
from klaw.imports.feed import OF_IMPORT, ImportReport, feed
from klaw.operations.handler import OPERATOR
from klaw.operations.perform import operations, perform, read
from klaw.store.attachments import Attachments
from klaw.store.originals import Originals
from klaw.store.store import Store

Read = Callable[[OpenedExport], Iterator[Event]]
FIRST, SECOND, THIRD = (f"source-20261123-06133{n}-512" for n in range(3))
"""Ids of imports."""
CASES = Path(__file__).parents[1] / "data" / "cases" / "imports"
START = 1_700_000_000.0
FILE_BYTES = 20_000_000
"""That a file may have."""
READERS: Mapping[str, Read] = {"chatgpt": chatgpt.read}


def zipped(path: Path, **files: Any) -> Path:
    """A ZIP; a name's ``__`` is its full stop."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            text = content if isinstance(content, (str, bytes)) else json.dumps(content)
            archive.writestr(name.replace("__", "."), text)
    return path


def events(path: Path, reader: Read) -> list[Event]:
    with opened(str(path)) as export:
        return list(reader(export))


def texts(path: Path, reader: Read) -> list[str]:
    return [f"{each.role}: {each.text}" for each in events(path, reader) if isinstance(each, ExportedMessage)]


async def imported(
    store: Store,
    source: str,
    path: Path,
    origin: str = FIRST,
    *,
    reader: Read | None = None,
    user: str = "local",
    topics: bool = False,
) -> ImportReport:
    """Import an export as the command does."""
    data = store.journal._root
    core = SimpleNamespace(
        readers=store.readers,
        writer=store.writer,
        clock=SystemClock(),
        files=Threads("files", 1),
        paths=Paths.resolve(data.parent),
        attachments=Attachments(data, AttachmentsConfig(max_file_bytes=FILE_BYTES), SystemClock()),
        originals=Originals(data, 1 << 24),
        config=EngineConfig(),
        new_id=lambda: secrets.token_hex(8),
    )
    knowledge = SimpleNamespace(indexer=Nudge())
    parts: Any = SimpleNamespace(core=core, readers=store.readers, embedder=Nudge(), knowledge=knowledge)

    def ask(name: str, part: dict[str, Any]) -> dict[str, Any]:
        given = {key: value for key, value in part.items() if value is not None}
        given |= {"user": user, **({"origin": origin} if name in OF_IMPORT else {})}
        return trio.from_thread.run(perform, read(operations()[name], given), OPERATOR, parts)

    def work() -> ImportReport:
        with opened(str(path)) as export:
            return feed((reader or READERS[source])(export), source, ask, lambda _done: None, topics=topics)

    return await trio.to_thread.run_sync(work)


# -- ChatGPT -----------------------------------------------------------------------------------------------------------


def node(key: str, parent: str | None, role: str, text: Any, at: float | None = START, **more: Any) -> dict[str, Any]:
    content = text if isinstance(text, dict) else {"content_type": "text", "parts": [text]}
    message = {"id": key, "author": {"role": role}, "create_time": at, "content": content, "recipient": "all", **more}
    return {"id": key, "parent": parent, "children": [], "message": {"metadata": {}, **message}}


def conversation(key: str, title: str | None, *nodes: dict[str, Any], current: str | None = None) -> dict[str, Any]:
    mapping = {"root": {"id": "root", "parent": None, "children": [], "message": None}}
    mapping |= {each["id"]: each for each in nodes}
    for each in nodes:
        mapping[each["parent"] or "root"]["children"].append(each["id"])
    current = current or nodes[-1]["id"]
    times = {"create_time": START, "update_time": START + 9}
    return {"title": title, "conversation_id": key, "mapping": mapping, "current_node": current, **times}


def talk(key: str, title: str | None, *said: str, at: float = START) -> dict[str, Any]:
    """A conversation in which user and assistant speak in turn."""
    nodes = [
        node(f"{key}-{n}", f"{key}-{n - 1}" if n else "root", ("user", "assistant")[n % 2], text, at + n)
        for n, text in enumerate(said)
    ]
    return conversation(key, title, *nodes)


def chatgpt_export(folder: Path, *conversations: Any, name: str = "export.zip") -> Path:
    return zipped(folder / name, conversations__json=list(conversations))


reading = partial(events, reader=chatgpt.read)
