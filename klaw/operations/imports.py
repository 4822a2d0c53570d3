"""What was moved in from other programs (``klaw.cli.imports`` reads their exports): storing it, listing, undoing."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, TypedDict, cast

import attrs

from klaw.actor.clock import iso
from klaw.convert import JOURNAL, Bounds, Check
from klaw.domain.attachment import NamedFile
from klaw.domain.forget import Thing
from klaw.domain.imported import IMPORT_FORM, MAX_KEPT, MAX_SAID, ImportedMessage, ImportId, import_id
from klaw.domain.message import chat_title
from klaw.domain.names import CHAT_FORM, chat_id, chat_name, zone
from klaw.domain.task import MAX_TASKS, Task
from klaw.domain.text import plural
from klaw.errors import TaskError
from klaw.operations import forget, stored
from klaw.operations import operation as op
from klaw.operations.chats import without_messages
from klaw.operations.handler import Caller, DatabaseParts, Parts
from klaw.operations.host.beside import NOT_BEGUN, CommandState, run_beside
from klaw.operations.lines import Lines, Table, minute
from klaw.operations.uploads import UploadedPiece, UploadId, piece

if TYPE_CHECKING:
    from klaw.actor.mailbox import Nudge
    from klaw.core import Core
    from klaw.operations.answers import ForgetAnswer
    from klaw.store.changes import Kind
    from klaw.store.kinds.imports import ImportSummary

NOUN = op.Noun("import", "move in what was said in other programs (docs/import.md)")

AT_ONCE = 20
CHARS_AT_ONCE = 10_000
"""Messages in one transaction, and characters of them: others who wait for the writer share a group with it."""
PAUSE_FACTOR = 0.5
"""A pause is so many times as long as the transaction before it."""
MAX_DATA = 900_000
"""Characters of a piece of a file; the admin socket takes a mebibyte."""


STAYS = "its documents stay: delete the knowledge base if you do not need it"
ACTOR = "import"
_NAMES = re.compile(r"--me\b.*?(?:in it are|one of) (.+)")

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


@attrs.frozen(kw_only=True)
class ImportRemember(op.OfUser):
    origin: OfImport = op.required("the import's id", metavar="ID")
    what: op.Name = op.required("the kind of things: fact, person, task or kb")
    values: Annotated[tuple[dict[str, Any], ...], Bounds(1, MAX_KEPT)] = op.required("as they are stored, of any user")


@attrs.frozen(kw_only=True)
class ExportRecords(op.PagedArguments):
    what: op.Name = op.required("the kind of things, such as task or kb")


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
    with_facts: bool = op.argument("also facts, people, files and tasks that came from it", default=False)
    dry_run: bool = op.argument("only list what would go and what holds it", default=True)


def zone_name(name: str) -> str:
    zone(name)
    return name


@attrs.frozen(kw_only=True, slots=False)
class OwnZone:
    """What an export may leave open."""

    zone: Annotated[str, Check(zone_name)] | None = op.argument(
        "time zone of times that name none, such as Europe/Berlin (default: this machine's)", metavar="ZONE"
    )


@attrs.frozen(kw_only=True, slots=False)
class OwnNameAndZone(OwnZone):
    me: Annotated[str, Bounds(1, 200)] | None = op.argument(
        "your own name in the export, where it does not say who you are", metavar="NAME"
    )


@attrs.frozen(kw_only=True, slots=False)
class ExportOfPeople(OwnNameAndZone):
    dates: Literal["dmy", "mdy", "ymd"] | None = op.argument(
        "the order of day, month and year, if the file does not show it"
    )


@attrs.frozen(kw_only=True)
class ImportRun(ExportOfPeople, op.OfUser):
    upload: UploadId = op.argument("of the export: hex digits", default=attrs.NOTHING)
    name: Annotated[str, Bounds(1, 1_000)] = op.argument("of the file", default="export")
    dry_run: bool = op.argument("only list what is in it, and what cannot be read", default=True)
    topics: bool = op.argument("also build topics from it, which costs calls to the model", default=False)


class ImportParts(Protocol):
    """What storing an import takes of a server, also without one."""

    @property
    def core(self) -> "Core": ...
    @property
    def embedder(self) -> "Nudge": ...
    @property
    def knowledge(self) -> Any:
        """Its ``indexer`` reads the documents of knowledge bases."""


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


class ImportList(TypedDict):
    user: str
    imports: "list[ImportSummary]"


class ImportState(CommandState):
    """``before``: the ids of earlier imports; what is listed beside them was brought by this one."""

    user: str
    upload: str
    name: str
    dry_run: bool
    before: list[str]


class RememberedRecords(TypedDict):
    added: int
    refused: list[str]
    """Names, and why each was not taken."""


class ExportedRecords(TypedDict):
    records: list[dict[str, Any]]
    next: int | None


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


def _moving(what: str, *, into: bool) -> "Kind[Any]":
    """A kind of things of exports, or of those that come ``into`` another Klaw. Raises OperationError."""
    kind = stored.records.kind_of(what)
    if kind is None or not (callable(kind.moves) if into else kind.moves):
        raise op.OperationError("bad_args", "things of this kind are not moved", field="what")
    return kind


@NOUN.operation("import_remember", ImportRemember, scope=op.Scope.OPERATOR, changes=True, deadline_s=300.0)
async def remember(asked: ImportRemember, caller: Caller, parts: ImportParts) -> RememberedRecords:
    """Store things of one kind that another Klaw has, a few at a time."""
    import trio

    from klaw.runs import task_input

    kind, good, refused, added = _moving(asked.what, into=True), [], [], 0
    here = {each.name for each in await parts.core.readers.run(stored.tasks.of_user, caller.user)}
    for fields in asked.values:
        try:
            value = stored.imports.checked(kind, fields)
            if isinstance(value, Task):
                value = task_input.check(value)
                if len(here | {value.name}) > MAX_TASKS:
                    raise ValueError(f"there are {MAX_TASKS} tasks already")  # noqa: TRY301 - one place for all
                here.add(value.name)
            good.append(value)
        except (ValueError, TaskError) as error:
            refused.append(f"{fields.get('name') or fields.get(kind.id)}: {error}")
    for first in range(0, len(good), AT_ONCE):
        begin, part, at = trio.current_time(), good[first : first + AT_ONCE], iso(parts.core.clock.now())
        origin = ImportId(asked.origin)
        added += await parts.core.writer.run(stored.imports.remember, caller.user, origin, kind, given=part, at=at)
        await trio.sleep((trio.current_time() - begin) * PAUSE_FACTOR)
    parts.embedder.nudge()
    return {"added": added, "refused": refused}


@NOUN.operation("export_records", ExportRecords, scope=op.Scope.OPERATOR, offline=True)
async def export(asked: ExportRecords, caller: Caller, parts: DatabaseParts) -> ExportedRecords:
    """A page of what is kept of one kind, as its journal has it."""
    kind = _moving(asked.what, into=False)
    total = await parts.readers.run(stored.records.count, kind, caller.user)
    found = await parts.readers.run(stored.records.page, kind, caller.user, asked.limit, asked.offset)
    return {"records": [JOURNAL.write(each) for each in found], "next": asked.following(total)}


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
async def list_imports(_asked: op.OfUser, caller: Caller, parts: DatabaseParts) -> ImportList:
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
async def undo(asked: ImportUndo, caller: Caller, parts: Parts) -> "ForgetAnswer":
    """Forget all that an import brought, and what was made of it; and show what still holds it.

    When the server is interrupted meanwhile, it goes on with it at its next start.
    """
    wanted = await parts.memory.forgetter.find(f"import:{asked.origin}", caller.user)
    count = await parts.readers.run(stored.imports.count, caller.user, ImportId(asked.origin))
    with_facts, dry_run = asked.with_facts, asked.dry_run
    done = without_messages(
        await forget.carried_out(wanted, caller, parts, with_facts=with_facts, dry_run=dry_run), count
    )
    bases = await parts.readers.run(stored.bases.of_user, caller.user)
    made = [each.base for each in bases if each.base.id.startswith(f"{asked.origin.partition('-')[0]}-")]
    staying = [Thing(kind="knowledge base", name=each.name, text="", goes=False, remedy=STAYS) for each in made]
    return {**done, "things": [*done["things"], *staying]}


@NOUN.operation("import_run", ImportRun, changes=True, route="POST run")
async def run(asked: ImportRun, caller: Caller, parts: Parts) -> ImportState:
    """Begin to import an uploaded export of any known program, or to look what is in it; import_progress tells how far
    it is. When it is interrupted, importing again adds only what is missing."""
    given = {"me": asked.me, "zone": asked.zone, "dates": asked.dates, "name": asked.name, "user": caller.user}
    words = [f"--{option}={value}" for option, value in given.items() if value is not None]
    words += ["--dry-run"] * asked.dry_run + ["--topics"] * asked.topics
    before = [each.id for each in await parts.readers.run(stored.imports.listed, caller.user)]
    file = await parts.core.originals.reopened(caller.user, asked.upload)
    about = {"user": caller.user, "upload": asked.upload, "name": asked.name, "dry_run": asked.dry_run}
    refused = partial(_refused, asked.name)
    command = ["import", "auto", *words, "-"]

    async def after(ended: Mapping[str, Any]) -> None:
        if not ended.get("field") and not (asked.dry_run and ended["state"] == "done"):  # else it is needed again
            await parts.core.originals.discard(caller.user, asked.upload)

    state = await run_beside(parts, ACTOR, command, stdin=file, refused=refused, after=after, **about, before=before)
    return cast("ImportState", state)


def _refused(name: str, text: str) -> op.OperationError:
    """What the page says where the command names its options."""
    if names := _NAMES.search(text):
        return op.OperationError("import_refused", f"what is your name in it? There are: {names[1]}", field="me")
    if "--dates" in text:
        return op.OperationError("import_refused", "is the day or the month first in its dates?", field="dates")
    return op.OperationError("import_refused", re.sub(r"^-(?=: )", lambda _: name, text))


@NOUN.operation("import_progress", op.OfUser, route="GET run")
async def progress(_asked: op.OfUser, caller: Caller, parts: Parts) -> ImportState:
    """Tell how far the last import is that was begun on the page, and what it answered."""
    found = parts.core.beside.get(ACTOR, {})
    idle = {**NOT_BEGUN, "user": caller.user, "upload": "", "name": "", "dry_run": True, "before": []}
    return cast("ImportState", found if found.get("user") == caller.user else idle)
