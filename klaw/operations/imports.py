"""What was moved in from other programs (``klaw.cli.imports`` reads their exports): storing it, listing, undoing."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypedDict, TypeVar, cast

import attrs

from klaw.actor.clock import iso
from klaw.convert import Bounds, Check
from klaw.domain import fact, person
from klaw.domain.attachment import NamedFile
from klaw.domain.fact import Fact
from klaw.domain.imported import IMPORT_FORM, MAX_KEPT, MAX_SAID, ImportedMessage, ImportId, import_id
from klaw.domain.message import chat_title, instant
from klaw.domain.names import CHAT_FORM, chat_id, chat_name
from klaw.domain.person import Person
from klaw.domain.text import plural
from klaw.operations import forget, stored
from klaw.operations import operation as op
from klaw.operations.chats import without_messages
from klaw.operations.handler import Caller, DatabaseParts, Parts
from klaw.operations.lines import Lines, Table, minute
from klaw.operations.uploads import UploadedPiece, UploadId, piece

if TYPE_CHECKING:
    from klaw.actor.mailbox import Nudge
    from klaw.core import Core
    from klaw.operations.answers import ForgottenChats
    from klaw.store.kinds.imports import ImportSummary

T = TypeVar("T")

NOUN = op.Noun("import", "move in what was said in other programs (docs/import.md)")

AT_ONCE = 20
CHARS_AT_ONCE = 10_000
"""Messages in one transaction, and characters of them: others who wait for the writer share a group with it."""
PAUSE_FACTOR = 0.5
"""A pause is so many times as long as the transaction before it."""
MAX_DATA = 900_000
"""Characters of a piece of a file; the admin socket takes a mebibyte."""


OfImport = Annotated[str, Check(import_id, Bounds(pattern=IMPORT_FORM))]
ChatName = Annotated[str, Check(chat_name, Bounds(pattern=CHAT_FORM))]


@attrs.frozen(kw_only=True)
class ImportPut(op.OfUser):
    origin: OfImport = op.required("the import's id", metavar="ID")
    prefix: Annotated[str, Bounds(0, 40)] = op.argument("of the ids of all messages of the chat", default="")
    name: ChatName = op.required("of the chat, if it is not there yet")
    title: Annotated[str, Check(chat_title)] = op.argument("it then gets", default="")
    topics: bool = op.argument("topics may be made of it", default=False)
    into: ChatName | None = op.argument("the chat that the part before was put into")
    said: Annotated[tuple[ImportedMessage, ...], Bounds(1, MAX_SAID)] = op.required("the messages")


def _fact(given: Fact) -> Fact:
    fact.check(given)
    return _timed(given, given.created_at, given.updated_at)


def _person(given: Person) -> Person:
    person.check(given)
    return _timed(given, given.created_at, given.updated_at, given.said_at)


def _timed(given: T, *times: str) -> T:
    for time in times:
        instant(time)
    return given


@attrs.frozen(kw_only=True)
class ImportRemember(op.OfUser):
    origin: OfImport = op.required("the import's id", metavar="ID")
    facts: Annotated[tuple[Annotated[Fact, Check(_fact)], ...], Bounds(0, MAX_KEPT)] = op.argument(
        "as they are stored, of any user", default=()
    )
    people: Annotated[tuple[Annotated[Person, Check(_person)], ...], Bounds(0, MAX_KEPT)] = op.argument(
        "people as they are stored, of any user", default=()
    )


@attrs.frozen(kw_only=True)
class ImportMissing(op.OfUser):
    ids: Annotated[tuple[str, ...], Bounds(1, MAX_SAID)] = op.required("of messages of an export")


@attrs.frozen(kw_only=True)
class ImportUpload(op.OfUser):
    upload: UploadId = op.required("of the file: hex digits")
    offset: Annotated[int, Bounds(0)] = op.argument("where in the file the piece belongs", default=0)
    data: Annotated[str, Bounds(0, MAX_DATA)] = op.required("the piece, in base64")


@attrs.frozen(kw_only=True)
class ImportKeep(op.OfUser):
    upload: UploadId = op.required("of the file")
    name: Annotated[str, Bounds(0, 1_000)] = op.required("of the file")


@attrs.frozen(kw_only=True)
class ImportUndo(op.OfUser):
    origin: OfImport = op.required("the import's id", metavar="ID")
    with_facts: bool = op.argument("also facts, people, files and tasks that were made of it", default=False)
    dry_run: bool = op.argument("only list what would go and what holds it", default=True)


class ImportParts(Protocol):
    """What storing an import takes of a server, also without one."""

    @property
    def core(self) -> "Core": ...
    @property
    def embedder(self) -> "Nudge": ...


def _table(answer: dict[str, Any]) -> Lines:
    if not answer["imports"]:
        return ["nothing was imported: docs/import.md says how"]
    counted = ("chats", "messages", "facts", "people")
    rows = [["import", *counted, "first", "last"]]
    for each in answer["imports"]:
        times = (minute(each[name]) for name in ("first_at", "last_at"))
        rows.append([each["id"], *(str(each[name]) for name in counted), *times])
    return [Table(rows, right=frozenset(range(1, 5))), "klaw import undo IMPORT forgets all that one of them brought"]


def _undone(answer: dict[str, Any]) -> Lines:
    facts, people = plural(len(answer["facts"]), "fact"), plural(len(answer["people"]), "person", "people")
    return [f"{plural(answer['messages'], 'message')}, {facts} and {people} of the import:", *forget.lines(answer)]


class Imports(TypedDict):
    user: str
    imports: "list[ImportSummary]"


class RememberedCounts(TypedDict):
    facts: int
    people: int


class StoredMessages(TypedDict):
    chat: str
    added: int
    known: int
    elsewhere: int


class MissingMessages(TypedDict):
    missing: list[str]


@NOUN.operation("import_put", ImportPut, scope=op.Scope.OPERATOR, changes=True, deadline_s=300.0)
async def put(asked: ImportPut, caller: Caller, parts: ImportParts) -> StoredMessages:
    """Store a part of a chat of another program, a few messages at a time."""
    import trio

    from klaw.store.engine import connect

    core, into = parts.core, chat_id(caller.user, asked.into) if asked.into else None
    counts = dict.fromkeys(("added", "known", "elsewhere"), 0)
    for part in _slices(asked.said):
        begin = trio.current_time()
        done = await core.writer.run(
            stored.imports.put,
            caller.user,
            ImportId(asked.origin),
            part,
            prefix=asked.prefix,
            name=asked.name,
            title=asked.title,
            topics=asked.topics,
            into=into,
            at=iso(core.clock.now()),
            limits=core.attachments.limits,
        )
        into = done.chat
        for name in counts:
            counts[name] += getattr(done, name)
        if done.added:
            pause = (trio.current_time() - begin) * PAUSE_FACTOR
            durable = await core.files.run(stored.imports.sync, core.paths.data_dir, done.logs)
            await core.writer.run_alone(stored.imports.settle, durable)
            await trio.sleep(pause)
    if counts["added"]:  # else the writer does it, for seconds where the disk is busy
        await core.files.run(connect.checkpoint, core.paths.database)
    parts.embedder.nudge()
    assert into is not None
    return cast("StoredMessages", {"chat": into.partition(":")[2], **counts})


@NOUN.operation("import_remember", ImportRemember, scope=op.Scope.OPERATOR, changes=True, deadline_s=300.0)
async def remember(asked: ImportRemember, caller: Caller, parts: ImportParts) -> RememberedCounts:
    """Store facts and people of another Klaw, a few at a time."""
    import trio

    async def add(given: Sequence[Fact | Person]) -> int:
        added, origin = 0, ImportId(asked.origin)
        for first in range(0, len(given), AT_ONCE):
            begin, part, at = trio.current_time(), given[first : first + AT_ONCE], iso(parts.core.clock.now())
            added += await parts.core.writer.run(stored.imports.remember, caller.user, origin, given=part, at=at)
            await trio.sleep((trio.current_time() - begin) * PAUSE_FACTOR)
        return added

    counts: RememberedCounts = {"facts": await add(asked.facts), "people": await add(asked.people)}
    parts.embedder.nudge()
    return counts


@NOUN.operation("import_missing", ImportMissing, scope=op.Scope.OPERATOR)
async def missing(asked: ImportMissing, caller: Caller, parts: ImportParts) -> MissingMessages:
    """Which messages of an export are not here, so that their files are needed."""
    return {"missing": await parts.core.readers.run(stored.imports.missing, caller.user, asked.ids)}


@NOUN.operation("import_upload", ImportUpload, scope=op.Scope.OPERATOR, changes=True)
async def upload(asked: ImportUpload, caller: Caller, parts: ImportParts) -> UploadedPiece:
    """Upload a piece of a file of an export; import_keep is told of the last one."""
    return {"size": await parts.core.originals.add(caller.user, asked.upload, asked.offset, piece(asked.data))}


@NOUN.operation("import_keep", ImportKeep, scope=op.Scope.OPERATOR, changes=True, deadline_s=300.0)
async def keep(asked: ImportKeep, caller: Caller, parts: ImportParts) -> NamedFile:
    """Keep an uploaded file for a message that comes next."""
    kept = await parts.core.attachments.take(
        caller.user, asked.name, partial(parts.core.originals.taken_out, caller.user, asked.upload)
    )
    return NamedFile(sha256=kept.sha256, name=kept.name)


def _slices(said: Sequence[ImportedMessage]) -> Iterator[Sequence[ImportedMessage]]:
    while said:
        part = op.fitting(said[:AT_ONCE], lambda each: len(each.content), CHARS_AT_ONCE)
        said = said[len(part) :]
        yield part


@NOUN.operation("import_list", op.OfUser, cli="list", show=_table, offline=True)
async def list_imports(_asked: op.OfUser, caller: Caller, parts: DatabaseParts) -> Imports:
    """List what was imported and is not forgotten."""
    return {"user": caller.user, "imports": await parts.readers.run(stored.imports.listed, caller.user)}


@NOUN.operation(
    "import_undo",
    ImportUndo,
    cli="undo",
    show=_undone,
    changes=True,
    deadline_s=6 * 3600.0,
    confirm="This cannot be undone. Forget what the import brought?",
)
async def undo(asked: ImportUndo, caller: Caller, parts: Parts) -> "ForgottenChats":
    """Forget all that an import brought, and what was made of it; and show what still holds it.

    When the server is interrupted meanwhile, it goes on with it at its next start.
    """
    wanted = await parts.memory.forgetter.find(f"import:{asked.origin}", caller.user)
    count = await parts.readers.run(stored.imports.count, caller.user, ImportId(asked.origin))
    with_facts, dry_run = asked.with_facts, asked.dry_run
    done = await forget.carried_out(wanted, caller, parts, with_facts=with_facts, dry_run=dry_run)
    return without_messages(done, count)
