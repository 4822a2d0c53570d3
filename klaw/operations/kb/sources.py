"""Sources of bases: files that are uploaded, folders, web pages, graphs."""

import re
from collections.abc import Container, Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, Literal

import attrs

from klaw.convert import Bounds
from klaw.domain.attachment import clean_name
from klaw.domain.knowledge import MAX_WHERE, Base, BaseId, Source, SourceId, SourceKind
from klaw.domain.names import UserId
from klaw.domain.text import clean_output, normalized
from klaw.errors import KlawError, ToolRefused
from klaw.operations import operation as op
from klaw.operations.handler import Caller, Parts
from klaw.operations.kb.noun import NOUN, OfBase, meant
from klaw.operations.lines import Lines, Table
from klaw.operations.uploads import PIECE_BYTES, UploadId, piece

if TYPE_CHECKING:
    from klaw.core import Core
    from klaw.knowledge.indexer import Indexer
    from klaw.operations.answers.chats import UploadedPiece
    from klaw.operations.answers.knowledge import AddedSource, RefreshedSource, Sources
    from klaw.store.engine.database import Readers

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


# -- how they are shown -----------------------------------------------------------------------------------------------


def _added(answer: dict[str, Any]) -> Lines:
    source = answer["source"]
    told_of = "added" if answer["added"] else "there already"
    return [f"{told_of}: {source['kind']} {source['name']} ({source['id']})"]


def sources_table(sources: list[dict[str, Any]]) -> Lines:
    """Sources, with what came of them."""
    if not sources:
        return ["no sources: `klaw kb add BASE FILE` adds a file, a folder or a web page"]
    rows = [["source", "kind", "read", "waiting", "failed", "name"]]
    for each in sources:
        read = each["documents"] - each["waiting"] - each["failed"]
        name = each["name"] if each["where"] in ("", each["name"]) else f"{each['name']}  {each['where']}"
        rows.append([each["id"], each["kind"], str(read), str(each["waiting"]), str(each["failed"]), name])
    states = [f"{each['name']}: {each['state']['text']}" for each in sources if each["state"] and each["state"]["text"]]
    return [Table(rows, right=frozenset({2, 3, 4})), *states]


def _table(answer: dict[str, Any]) -> Lines:
    return sources_table(answer["sources"])


def _refreshed(answer: dict[str, Any]) -> Lines:
    problem = answer["problem"]
    return [f"{answer['name']} is looked at again", *([f"when it was last looked at: {problem}"] if problem else [])]


# -- the operations ---------------------------------------------------------------------------------------------------


async def told(readers: "Readers", indexer: "Indexer", user: UserId, base: BaseId) -> list[Any]:  # of CountedSource
    """The sources of a base, with what came of them."""
    from klaw.store.kinds.knowledge import documents, sources

    counted = {each.source: each for each in await readers.run(documents.count, user, base)}
    found = await readers.run(sources.of_base, user, base)
    nothing = {"documents": 0, "waiting": 0, "failed": 0, "with_problems": 0, "passages": 0, "bytes": 0}
    return [
        {**attrs.asdict(each), **_counts(counted.get(each.id), nothing), "state": indexer.state_of(each.id)}
        for each in found
    ]


def _counts(counted: Any, nothing: Mapping[str, int]) -> dict[str, int]:
    return {name: getattr(counted, name, 0) for name in nothing}


@NOUN.operation("kb_upload", KbUpload, changes=True, route="POST uploads")
async def upload(asked: KbUpload, caller: Caller, parts: Parts) -> "UploadedPiece":
    """Upload a piece of a file, which becomes a source by kb_add. A whole file: POST /api/v1/kb/{base}/files."""
    named = asked.upload or parts.core.new_id()
    return {
        "upload": named,
        "size": await parts.core.originals.add(caller.user, named, asked.offset, piece(asked.data)),
    }


@NOUN.operation("kb_add", KbAdd, cli="add", show=_added, changes=True, deadline_s=120.0, route="POST {base}/sources")
async def add(asked: KbAdd, caller: Caller, parts: Parts) -> "AddedSource":  # fmt: skip
    """Add a file, a folder, a web page or a graph to a base."""
    from klaw.store.kinds.knowledge import bases, sources

    base = await parts.readers.run(
        bases.editable, caller.user, (await meant(parts.readers, caller.user, asked.base)).base.id
    )
    source = SourceId(parts.core.new_id())
    found: Source | KlawError
    try:
        made = await _made(asked, base, source, "" if caller.operator else caller.user, parts.core)
        if made.kind is SourceKind.SPARQL:
            await parts.knowledge.graphs.check(made)
        if asked.upload is not None:
            kept = await parts.core.originals.keep(caller.user, asked.upload, source)
            made = attrs.evolve(made, sha256=kept.sha256, size=kept.size)
        found = await parts.writer.run(sources.add, caller.user, made, parts.core.config.kb.max_user_bytes)
    except KlawError as error:  # whatever else happens, what is left is removed later
        found = error
    is_new = isinstance(found, Source) and found.id == source
    if asked.upload is not None and not is_new:
        await parts.core.originals.discard(caller.user, asked.upload)
        await parts.core.originals.remove(source)
    if isinstance(found, KlawError):
        raise found
    parts.knowledge.indexer.nudge()
    return {"source": found, "added": is_new}


async def _made(asked: KbAdd, base: Base, source: SourceId, added_by: str, core: "Core") -> Source:
    """The source that is asked for. Raises OperationError, NotAllowed."""
    from klaw.actor.clock import iso
    from klaw.knowledge import folders

    kind, where, at = _kind(asked), (asked.what or "").strip(), iso(core.clock.now())
    name = " ".join(clean_output(normalized("NFC", asked.name or where)).split())
    match kind:
        case SourceKind.FILE | SourceKind.RDF:
            if asked.upload is None:
                text = "a file is uploaded: POST /api/v1/kb/{base}/files, or `klaw kb add` in a terminal"
                raise op.OperationError("bad_args", text, field="what")
            where, name = "", clean_name(asked.name or "")
        case SourceKind.FOLDER:
            config, paths = core.config.kb, core.paths
            where = await core.files.run(folders.checked, where, added_by, config, paths)
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
    """What is to be added. Pure. Raises OperationError."""
    if (asked.what is None) == (asked.upload is None):
        raise op.OperationError("bad_args", "name one file, folder or address", field="what")
    if asked.upload is not None:
        is_graph = (
            PurePosixPath(asked.name or "").suffix.lower() in GRAPHS if asked.kind is None else asked.kind == "rdf"
        )
        if asked.kind not in (None, "file", "rdf"):
            raise op.OperationError("bad_args", "an uploaded file is of the kind file or rdf", field="kind")
        return SourceKind.RDF if is_graph else SourceKind.FILE
    is_web = _WEB.match(asked.what or "")
    return SourceKind(asked.kind or ("web" if is_web else "folder"))


async def _public(where: str, ports: Container[int]) -> str:
    """A web address that may be fetched. Raises OperationError."""
    from klaw.guarded_http import checked_addresses, parse

    try:
        target = parse(where, ports)
        await checked_addresses(target.host, target.port)
    except ToolRefused as error:
        raise op.OperationError("bad_args", str(error), field="what") from None
    return target.url


@NOUN.operation("kb_sources", OfBase, cli="sources", show=_table, route="GET {base}/sources")
async def list_sources(asked: OfBase, caller: Caller, parts: Parts) -> "Sources":
    """List the sources of a base, with how many documents of each were read."""
    base = (await meant(parts.readers, caller.user, asked.base)).base
    return {
        "base": base.id,
        "name": base.name,
        "sources": await told(parts.readers, parts.knowledge.indexer, caller.user, base.id),
    }


@NOUN.operation(
    "kb_refresh", OfSource, cli="refresh", show=_refreshed, changes=True, route="POST sources/{source}/refresh"
)
async def refresh(asked: OfSource, caller: Caller, parts: Parts) -> "RefreshedSource":
    """Look at a source again: read what could not be read, compare each file with what was read of it, fetch a page."""
    from klaw.store.kinds.knowledge import bases, sources

    source = await parts.readers.run(sources.get, caller.user, SourceId(asked.source))
    await parts.readers.run(bases.editable, caller.user, source.base)
    state = parts.knowledge.indexer.state_of(source.id)
    parts.knowledge.indexer.read_again(source.id)
    return {"source": source.id, "name": source.name, "problem": state.text if state is not None else ""}
