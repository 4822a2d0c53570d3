"""Documents of the projects of another program: each project's become a knowledge base."""

from typing import Annotated, TypedDict

import attrs

from klaw.actor.clock import iso
from klaw.convert import Bounds, Check
from klaw.domain.attachment import clean_name
from klaw.domain.imported import project_base
from klaw.domain.knowledge import MAX_NAME, Base, BaseId, Source, SourceId, SourceKind, base_name
from klaw.errors import KlawError
from klaw.operations import operation as op
from klaw.operations import stored
from klaw.operations.handler import Caller
from klaw.operations.imports import NOUN, ImportKeep, ImportParts


@attrs.frozen(kw_only=True)
class ImportDocument(ImportKeep):
    key: Annotated[str, Bounds(1, 1_000)] = op.required("of its project: the source, and the project's id")
    base: Annotated[str, Check(base_name), Bounds(1, MAX_NAME)] = op.required(
        "what its knowledge base is called, if it is not there yet"
    )


class ImportedDocument(TypedDict):
    base: str
    added: bool


@NOUN.operation("import_document", ImportDocument, scope=op.Scope.OPERATOR, changes=True, deadline_s=120.0)
async def keep_document(asked: ImportDocument, caller: Caller, parts: ImportParts) -> ImportedDocument:
    """Keep an uploaded document of a project in the project's knowledge base, which is made if it is not there."""
    core, user, at = parts.core, caller.user, iso(parts.core.clock.now())
    source = SourceId(core.new_id())
    own = BaseId(project_base(user, asked.key))
    base = Base(id=own, user=user, name=asked.base, created_at=at, updated_at=at)
    kept = await core.originals.keep(user, asked.upload, source)
    document = Source(
        id=source, user=user, base=base.id, kind=SourceKind.FILE, name=clean_name(asked.name), sha256=kept.sha256,
        size=kept.size, added_by=user, created_at=at, updated_at=at,
    )  # fmt: skip
    found: Source | KlawError
    try:
        base, found = await core.writer.run(stored.imports.put_document, base, document, core.config.kb.max_user_bytes)
    except KlawError as error:  # whatever else happens, what is left is removed later
        found = error
    if isinstance(found, KlawError) or found.id != source:
        await core.originals.remove(source)
    if isinstance(found, KlawError):
        raise found
    parts.knowledge.indexer.nudge()
    return {"base": base.name, "added": found.id == source}
