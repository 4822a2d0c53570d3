"""Sources of bases: files that are uploaded, folders, web pages, graphs."""

import re
from collections.abc import Container
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

import attrs
from attrs.filters import exclude

from klaw.convert import Bounds
from klaw.domain.attachment import clean_name
from klaw.domain.knowledge import MAX_WHERE, Base, BaseId, Document, Source, SourceId, SourceKind
from klaw.domain.names import UserId
from klaw.domain.text import clean_output, normalized, plural
from klaw.errors import KlawError, ToolRefused
from klaw.operations import operation as op
from klaw.operations import stored
from klaw.operations.handler import Caller, Parts
from klaw.operations.kb.bases import NOUN, OfBase, OneBase, base_lines, described, meant_base
from klaw.operations.lines import Lines, Table
from klaw.operations.uploads import PIECE_BYTES, UploadedPiece, UploadId, piece

if TYPE_CHECKING:
    from klaw.core import Core
    from klaw.knowledge.scan import SourceState

MOST_PROBLEMS = 20
GRAPHS = frozenset({".ttl", ".nt", ".nq", ".trig", ".rdf", ".owl", ".jsonld"})
"""Names of files that end so are graphs."""

_WEB = re.compile(r"https?://", re.IGNORECASE)

Where = Annotated[str, Bounds(1, MAX_WHERE)]


@attrs.frozen(kw_only=True)
class KbUpload(op.OfUser):
    data: Annotated[str, Bounds(0, PIECE_BYTES * 4 // 3)] = op.argument(
        "a piece of the file, in base64", default=attrs.NOTHING
    )
    upload: UploadId | None = op.argument("the upload that it belongs to (default: a new one)")
    offset: Annotated[int, Bounds(0)] = op.argument("where in the file it belongs", default=0)


@attrs.frozen(kw_only=True)
class KbAdd(OfBase):
    what: Where | None = op.argument(
        "a file of this machine, a folder, a web address; with --kind sparql the address of an endpoint or its name in"
        " kb.endpoints; several may be given",
        positional=True,
        metavar="WHAT",
        upload="upload",
    )
    upload: UploadId | None = op.argument("the file, of kb_upload", hidden=True)
    kind: Literal["file", "folder", "web", "rdf", "sparql"] | None = op.argument(
        "what it is, where that cannot be seen"
    )
    name: Where | None = op.argument("what it is called here (default: its file name or address)", metavar="NAME")


@attrs.frozen(kw_only=True)
class OfSource(op.OfUser):
    source: op.Name = op.required("the source's id, as `klaw kb show` tells it", id_of="kb_source")


@attrs.frozen(kw_only=True)
class CountedSource(Source):
    documents: int = 0
    waiting: int = 0
    failed: int = 0
    with_problems: int = 0
    passages: int = 0
    bytes: int = 0
    state: "SourceState | None"


class ShownBase(OneBase):
    sources: list[CountedSource]
    unembedded: int
    with_problems: int
    problems: list[Document]


class SourceList(TypedDict):
    base: str
    name: str
    sources: list[CountedSource]


class AddedSource(TypedDict):
    source: Source
    added: bool


class RefreshedSource(TypedDict):
    source: str
    name: str
    problem: str


def _whole(answer: dict[str, Any]) -> Lines:
    base, lines = answer["base"], [*base_lines(answer)]
    lines.append(f"{plural(base['documents'], 'document')}, {plural(base['passages'], 'passage')}")
    if answer["unembedded"]:
        lines.append(f"{plural(answer['unembedded'], 'passage')} not yet found by meaning, only by words")
    lines += [*_table(answer), *problem_lines(answer["problems"])]
    left = answer["with_problems"] - len(answer["problems"])
    more = f"{plural(left, 'more document')} with problems: klaw kb documents {base['id']} --problems"
    return [*lines, more] if left > 0 else lines


def problem_lines(documents: list[dict[str, Any]]) -> list[str]:
    """What of documents could not be read, by file and page."""
    return [problem["text"] for each in documents for problem in each["problems"]]


def _added(answer: dict[str, Any]) -> Lines:
    source = answer["source"]
    told_of = "added" if answer["added"] else "there already"
    return [f"{told_of}: {source['kind']} {source['name']} ({source['id']})"]


def _table(answer: dict[str, Any]) -> Lines:
    sources = answer["sources"]
    if not sources:
        return ["no sources: `klaw kb add BASE FILE` adds a file, a folder or a web page"]
    rows = [["source", "kind", "read", "waiting", "failed", "name"]]
    for each in sources:
        read = each["documents"] - each["waiting"] - each["failed"]
        name = each["name"] if each["where"] in ("", each["name"]) else f"{each['name']}  {each['where']}"
        rows.append([each["id"], each["kind"], str(read), str(each["waiting"]), str(each["failed"]), name])
    states = [f"{each['name']}: {each['state']['text']}" for each in sources if each["state"] and each["state"]["text"]]
    return [Table(rows, right=frozenset({2, 3, 4})), *states]


def _refreshed(answer: dict[str, Any]) -> Lines:
    problem = answer["problem"]
    return [f"{answer['name']} is looked at again", *([f"when it was last looked at: {problem}"] if problem else [])]


async def _counted(base: BaseId, user: UserId, parts: Parts) -> list[CountedSource]:
    counts = {each.source: each for each in await parts.readers.run(stored.documents.count, user, base)}
    return [
        CountedSource(
            **attrs.asdict(each),
            **attrs.asdict(counts[each.id], filter=exclude("base", "source")) if each.id in counts else {},
            state=parts.knowledge.indexer.state_of(each.id),
        )
        for each in await parts.readers.run(stored.sources.of_base, user, base)
    ]


@NOUN.operation("kb_show", OfBase, cli="show", show=_whole)
async def show(asked: OfBase, caller: Caller, parts: Parts) -> ShownBase:
    """Show a base with its sources, and what of them could not be read."""
    documents, user, base = stored.documents, caller.user, (await meant_base(asked, caller, parts)).id
    sources = await _counted(base, user, parts)
    return {
        "base": await described(base, user, parts),
        "sources": sources,
        "unembedded": await parts.readers.run(documents.count_unembedded, user, base),
        "with_problems": sum(each.with_problems for each in sources),
        "problems": await parts.readers.run(documents.of_base, user, base, problems=True, limit=MOST_PROBLEMS),
    }


@NOUN.operation("kb_sources", OfBase, cli="sources", show=_table, route="GET {base}/sources")
async def list_sources(asked: OfBase, caller: Caller, parts: Parts) -> SourceList:
    """List the sources of a base, with how many documents of each were read."""
    base = await meant_base(asked, caller, parts)
    return {"base": base.id, "name": base.name, "sources": await _counted(base.id, caller.user, parts)}


@NOUN.operation("kb_upload", KbUpload, changes=True, route="POST uploads")
async def upload(asked: KbUpload, caller: Caller, parts: Parts) -> UploadedPiece:
    """Upload a piece of a file, which becomes a source by kb_add. A whole file: POST /api/v1/kb/{base}/files."""
    named = asked.upload or parts.core.new_id()
    size = await parts.core.originals.add(caller.user, named, asked.offset, piece(asked.data))
    return {"upload": named, "size": size}


@NOUN.operation("kb_add", KbAdd, cli="add", show=_added, changes=True, deadline_s=120.0, route="POST {base}/sources")
async def add(asked: KbAdd, caller: Caller, parts: Parts) -> AddedSource:
    """Add a file, a folder, a web page or a graph to a base."""
    named = (await meant_base(asked, caller, parts)).id
    base = await parts.readers.run(stored.bases.editable, caller.user, named)
    source, originals = SourceId(parts.core.new_id()), parts.core.originals
    found: Source | KlawError
    try:
        made = await _made(asked, base, source, "" if caller.operator else caller.user, parts.now(), parts.core)
        if made.kind is SourceKind.SPARQL:
            await parts.knowledge.graphs.check(made)
        if asked.upload is not None:
            kept = await originals.keep(caller.user, asked.upload, source)
            made = attrs.evolve(made, sha256=kept.sha256, size=kept.size)
        found = await parts.writer.run(stored.sources.add, caller.user, made, parts.config.kb.max_user_bytes)
    except KlawError as error:  # whatever else happens, what is left is removed later
        found = error
    is_new = isinstance(found, Source) and found.id == source
    if asked.upload is not None and not is_new:
        await originals.discard(caller.user, asked.upload)
        await originals.remove(source)
    if isinstance(found, KlawError):
        raise found
    parts.knowledge.indexer.nudge()
    return {"source": found, "added": is_new}


async def _made(asked: KbAdd, base: Base, source: SourceId, added_by: str, at: str, core: "Core") -> Source:
    from klaw.knowledge import folders

    kind, where = _kind(asked), (asked.what or "").strip()
    name = " ".join(clean_output(normalized("NFC", asked.name or where)).split())
    match kind:
        case SourceKind.FILE | SourceKind.RDF:
            if asked.upload is None:
                text = "a file is uploaded: POST /api/v1/kb/{base}/files, or `klaw kb add` in a terminal"
                raise op.OperationError("bad_args", text, field="what")
            where, name = "", clean_name(asked.name or "")
        case SourceKind.FOLDER:
            where = await core.files.run(folders.checked, where, added_by, core.config.kb, core.paths)
            name = clean_name(asked.name or where)
        case SourceKind.SPARQL:
            name = name or where
        case SourceKind.WEB:
            where = await _public(where, core.config.tools.web.ports)
            name = name or where
    return Source(
        id=source, user=base.user, base=base.id, kind=kind, name=name, where=where, added_by=added_by, created_at=at,
        updated_at=at,
    )  # fmt: skip


def _kind(asked: KbAdd) -> SourceKind:
    if (asked.what is None) == (asked.upload is None):
        raise op.OperationError("bad_args", "name one file, folder or address", field="what")
    if asked.upload is None:
        return SourceKind(asked.kind or ("web" if _WEB.match(asked.what or "") else "folder"))
    if asked.kind not in (None, "file", "rdf"):
        raise op.OperationError("bad_args", "an uploaded file is of the kind file or rdf", field="kind")
    by_name = "rdf" if PurePosixPath(asked.name or "").suffix.lower() in GRAPHS else "file"
    return SourceKind(asked.kind or by_name)


async def _public(where: str, ports: Container[int]) -> str:
    from klaw.guarded_http import checked_addresses, parse

    try:
        target = parse(where, ports)
        await checked_addresses(target.host, target.port)
    except ToolRefused as error:
        raise op.OperationError("bad_args", str(error), field="what") from None
    return target.url


@NOUN.operation(
    "kb_refresh", OfSource, cli="refresh", show=_refreshed, changes=True, route="POST sources/{source}/refresh"
)
async def refresh(asked: OfSource, caller: Caller, parts: Parts) -> RefreshedSource:
    """Look at a source again: read what could not be read, compare each file with what was read of it, fetch a page."""
    source = await parts.readers.run(stored.sources.get, caller.user, SourceId(asked.source))
    await parts.readers.run(stored.bases.editable, caller.user, source.base)
    state = parts.knowledge.indexer.state_of(source.id)
    parts.knowledge.indexer.read_again(source.id)
    return {"source": source.id, "name": source.name, "problem": state.text if state is not None else ""}
