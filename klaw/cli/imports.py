"""``klaw import FORMAT FILE``: move in conversations from another program.

This program reads the file, since the server may not read the folders of people, and gives it in parts to the server,
or without one to the store.
"""

import datetime as dt
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import attrs

from klaw.cli.admin_call import NoServer, call
from klaw.cli.operations import Here, command
from klaw.config.paths import Paths
from klaw.domain import names
from klaw.domain.text import counted, plural
from klaw.errors import KlawError
from klaw.operations.imports import ExportOfPeople, OwnNameAndZone, OwnZone
from klaw.operations.lines import ShownLines, minute
from klaw.operations.operation import Noun, OfUser, argument, required

if TYPE_CHECKING:
    from klaw.actor.mailbox import Nudge
    from klaw.core import Core
    from klaw.imports.events import Event
    from klaw.imports.export_files import OpenedExport
    from klaw.imports.feed import Ask, ImportReport
    from klaw.store.engine.database import Readers

NOUN = Noun("import", "move in what was said in other programs (docs/import.md)", local=True)
ASK_S = 600.0
"""Time for one part or file, which may have to wait for the server."""
CHECKPOINT_BYTES = 1 << 22
"""Size of the commit log at which it is emptied, without a server."""


@attrs.frozen(kw_only=True)
class ImportArguments(OfUser):
    file: str = required("the export: a file, a ZIP or a folder; - for standard input, redirected from a file")
    dry_run: bool = argument("only list what is in it, and what cannot be read", default=False)
    topics: bool = argument("also build topics from it, which costs calls to the model", default=False)


@attrs.frozen(kw_only=True)
class ImportZone(OwnZone, ImportArguments):
    pass


@attrs.frozen(kw_only=True)
class ImportPeople(OwnNameAndZone, ImportArguments):
    pass


@attrs.frozen(kw_only=True)
class WhatsApp(ExportOfPeople, ImportArguments):
    title: str | None = argument("what the chat is called (default: by the name of the file)", metavar="TITLE")


@attrs.frozen(kw_only=True)
class AnyExport(WhatsApp):
    name: str | None = argument("what the file was called, if it comes from standard input", metavar="NAME")


def _shown(answer: dict[str, Any]) -> ShownLines:
    span = f", {minute(answer['first_at'])} to {minute(answer['last_at'])}" if answer["messages"] else ""
    stored = f"{answer['added']:,} added, {answer['known']:,} were here already"
    lines = [f"{plural(answer['messages'], 'message')} in {plural(answer['chats'], 'chat')}{span}"]
    lines.append("nothing was stored" if answer["dry_run"] else stored)
    if kept := answer["kept"]:
        new, rest = answer["remembered"], sum(kept.values()) - answer["remembered"]
        done = "" if answer["dry_run"] else f": {new:,} added, {rest:,} were here before"
        lines.append(f"{', '.join(counted(count, many) for many, count in kept.items())}{done}")
    if "tasks" in kept and answer["remembered"] and not answer["dry_run"]:
        lines.append("imported tasks do not run until you enable them: klaw schedule enable NAME")
    if answer["files"]:
        lines.append(f"{plural(answer['files'], 'file')} of them, {answer['file_bytes']:,} bytes")
    if bases := answer["projects"]:
        lines.append(f"a knowledge base of each project: {', '.join(bases.values())}; undo leaves them")
    if answer["elsewhere"]:
        lines.append(f"{answer['elsewhere']:,} are here in another chat, and were not added")
    if answer["left_out"]:
        told = ", ".join(f"{count:,} {why}" for why, count in answer["left_out"].items())
        lines.append(f"left out: {told}")
    if answer["added"] or (answer["remembered"] and (answer["facts"] or answer["people"])):  # undo leaves the others
        lines.append(f"to take it back: klaw import undo {answer['import']}")
    notes = [f"NOT read: {each['what']}: {each['why']}" for each in answer["unread"]]
    if more := answer["unread_count"] - len(notes):
        notes.append(f"… and {more:,} more")
    found = any(answer[name] for name in ("messages", "kept"))
    return ShownLines(lines, notes=notes, found=found)


@command(NOUN, "import_chatgpt", ImportArguments, cli="chatgpt", show=_shown)
def chatgpt(asked: ImportArguments, here: Here) -> dict[str, Any]:
    """Import an export of ChatGPT: the ZIP that its settings send, a folder, or conversations.json."""
    from klaw.imports import chatgpt

    return _imported(asked, here, chatgpt.SOURCE, chatgpt.read)


@command(NOUN, "import_claude", ImportArguments, cli="claude", show=_shown)
def claude(asked: ImportArguments, here: Here) -> dict[str, Any]:
    """Import an export of Claude: the ZIP that its settings send, a folder, or conversations.json. What it remembered
    becomes facts, and the documents of each project a knowledge base."""
    from klaw.imports import claude

    return _imported(asked, here, claude.SOURCE, claude.read)


@command(NOUN, "import_gemini", ImportZone, cli="gemini", show=_shown)
def gemini(asked: ImportZone, here: Here) -> dict[str, Any]:
    """Import what Google Takeout has of Gemini: the ZIP, a folder, MyActivity.json or MyActivity.html."""
    from klaw.imports import gemini
    from klaw.toolbox.html_text import convert

    read = partial(gemini.read, zone=_zone(asked), to_text=lambda html: convert(html, "", plain=True)["text"])
    return _imported(asked, here, gemini.SOURCE, read)


@command(NOUN, "import_telegram", ImportPeople, cli="telegram", show=_shown)
def telegram(asked: ImportPeople, here: Here) -> dict[str, Any]:
    """Import chats that Telegram Desktop exported as JSON: the folder, or result.json."""
    from klaw.imports import telegram

    read = partial(telegram.read, me=asked.me, zone=_zone(asked))
    return _imported(asked, here, telegram.SOURCE, read)


@command(NOUN, "import_whatsapp", WhatsApp, cli="whatsapp", show=_shown)
def whatsapp(asked: WhatsApp, here: Here) -> dict[str, Any]:
    """Import a chat that WhatsApp exported: the ZIP, or the text in it."""
    from klaw.imports import whatsapp

    read = partial(whatsapp.read, me=asked.me, order=asked.dates, zone=_zone(asked), title=asked.title)
    return _imported(asked, here, whatsapp.SOURCE, read)


@command(NOUN, "import_openclaw", ImportArguments, cli="openclaw", show=_shown)
def openclaw(asked: ImportArguments, here: Here) -> dict[str, Any]:
    """Import the sessions of OpenClaw: its folder, that of an agent, or one session's file."""
    from klaw.imports import openclaw

    return _imported(asked, here, openclaw.SOURCE, openclaw.read)


@command(NOUN, "import_klaw", ImportArguments, cli="klaw", show=_shown)
def klaw(asked: ImportArguments, here: Here) -> dict[str, Any]:
    """Import what `klaw export` wrote in another Klaw, or a chat of `klaw chats export --json`.

    Tasks come in disabled, knowledge bases without their sources. Topics and summaries do not come in.
    """
    from klaw.imports import klaw_export

    return _imported(asked, here, klaw_export.SOURCE, klaw_export.read)


@command(NOUN, "import_auto", AnyExport, cli="auto", show=_shown)
def auto(asked: AnyExport, here: Here) -> dict[str, Any]:
    """Import an export of any of these programs; its content tells which."""
    from klaw.imports import export_files
    from klaw.imports import whatsapp as of_whatsapp

    with export_files.opened(asked.file) as export:
        source = export_files.source_of(export)
    if source == of_whatsapp.SOURCE and asked.title is None and asked.name is not None:
        asked = attrs.evolve(asked, title=of_whatsapp.title_of(Path(asked.name).stem) or None)
    reading: dict[str, Callable[[Any, Here], dict[str, Any]]]
    reading = {each.__name__: each for each in (chatgpt, claude, gemini, telegram, whatsapp, openclaw, klaw)}
    return {**reading[source](asked, here), "source": source}


def _zone(asked: OwnZone) -> dt.tzinfo | None:
    return names.zone(asked.zone) if asked.zone else None


def _imported(
    asked: ImportArguments, here: Here, source: str, read: "Callable[[OpenedExport], Iterator[Event]]"
) -> dict[str, Any]:
    from klaw.imports.events import ImportRefused
    from klaw.imports.export_files import opened
    from klaw.imports.feed import feed

    now = time.time()
    origin = f"{source}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}-{int(now * 1000) % 1000:03}"
    tell = partial(here.progress.show, "messages")

    def found(export: "OpenedExport") -> "Iterator[Event]":
        yield from read(export)
        yield from export.others() if source != "klaw" else ()  # which are the same for people to read

    with opened(asked.file) as export:
        feeding = partial(feed, found(export), source, tell=tell, topics=asked.topics)
        report = feeding(None) if asked.dry_run else _storing(here.paths, origin, asked.user, feeding)
    if not any((report.chats, report.kept, report.unread_count, report.left_out)):
        raise ImportRefused(f"{asked.file}: there is no message of {source} in it")
    about = {"import": origin, "dry_run": asked.dry_run}
    return {**about, "facts": report.kept["facts"], "people": report.kept["people"], **attrs.asdict(report)}


def _storing(paths: Paths, origin: str, user: str | None, work: "Callable[[Ask], ImportReport]") -> "ImportReport":
    """Do the work with what stores a part: the server, or without one the store itself."""
    from klaw.imports.feed import OF_IMPORT

    def given(name: str, part: dict[str, Any]) -> dict[str, Any]:
        values = {**part, "user": user, **({"origin": origin} if name in OF_IMPORT else {})}
        return {key: value for key, value in values.items() if value is not None}

    try:
        call(paths, "health")
    except NoServer:
        if not paths.database.is_file():
            raise
    else:
        return work(lambda name, part: call(paths, name, timeout_s=ASK_S, **given(name, part)))
    import trio

    from klaw.actor import log
    from klaw.actor.failure import leaves

    log.configure("error", "auto")
    try:
        return trio.run(_alone, paths, given, work)
    except BaseExceptionGroup as group:
        known = [each for each in leaves(group) if isinstance(each, (KeyboardInterrupt, KlawError))]
        if not known:
            raise
        raise min(known, key=lambda each: isinstance(each, KlawError)) from None


@attrs.frozen(kw_only=True)
class _Parts:
    """``operations.imports.ImportParts``."""

    core: "Core"
    readers: "Readers"
    embedder: "Nudge"
    knowledge: Any
    """Its ``indexer``: a server that starts later reads new documents by itself."""


async def _alone(
    paths: Paths, given: Callable[[str, dict[str, Any]], dict[str, Any]], work: "Callable[[Ask], ImportReport]"
) -> "ImportReport":
    import trio

    from klaw.actor.clock import SystemClock
    from klaw.actor.mailbox import Nudge
    from klaw.actor.supervisor import ActorSpec, Supervisor
    from klaw.config.load import load
    from klaw.core import Core
    from klaw.gateway.hub import Hub
    from klaw.operations.handler import OPERATOR
    from klaw.operations.perform import operations, perform, read
    from klaw.store.engine import writer as writer_actor
    from klaw.store.engine.journal import Journal
    from klaw.store.store import open_store

    config, _ = load(paths.config_file)
    clock, journal = SystemClock(), Journal(paths.data_dir, checkpoint_bytes=CHECKPOINT_BYTES)
    async with open_store(paths.database, journal, readers=1) as store, trio.open_nursery() as nursery:
        supervisor, mailbox = Supervisor(nursery, clock), store.writer.mailbox
        run = partial(writer_actor.run, publish=lambda _stored: None)
        write = partial(run, writer=store.writer, database=store.database, journal=journal)
        await supervisor.start(ActorSpec(name=mailbox.name, mailbox=mailbox, vital=True, run=write))
        core = Core(config=config, paths=paths, clock=clock, store=store, events=Hub(), supervisor=supervisor)
        knowledge = SimpleNamespace(indexer=Nudge())
        parts = _Parts(core=core, readers=store.readers, embedder=Nudge(), knowledge=knowledge)

        def ask(name: str, part: dict[str, Any]) -> dict[str, Any]:
            return trio.from_thread.run(perform, read(operations()[name], given(name, part)), OPERATOR, parts)

        report = await trio.to_thread.run_sync(work, ask)
        await supervisor.stop(mailbox.name, "all is stored")
    return report
