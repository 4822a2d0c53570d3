"""Compares the database's knowledge of a base with its files and its indexes."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs

from klaw.config.safe_open import NotPlain
from klaw.domain.knowledge import Document, DocumentState, Source, SourceId, SourceKind
from klaw.domain.text import plural
from klaw.knowledge import scan
from klaw.store import originals

READ_AGAIN = "--repair reads it again"
REINDEX = "klaw reindex makes the index again"
REMOVED = "--repair removes them"


@attrs.frozen(kw_only=True)
class Flaw:
    """A difference."""

    code: str
    """``file_missing``, ``file_differs``, ``file_unreadable``, ``not_indexed``, ``incomplete``, ``orphans``."""
    text: str
    remedy: str
    source: SourceId | None = None


def files(data_dir: Path, source: Source, found: Sequence[Document], *, full: bool) -> list[Flaw]:
    """Compare the files of a source with what was read of them. Blocks.

    Args:
        full: compare the contents, not only the sizes.
    """
    if source.sha256 and source.id not in originals.every(data_dir):
        remedy = "put it back from a backup of knowledge/, or remove the source and add the file again"
        if source.kind is SourceKind.WEB:
            remedy = READ_AGAIN
        return [Flaw(code="file_missing", text=f"{source.name} is no longer kept", remedy=remedy, source=source.id)]
    flaws = []
    for document in found:
        what = _compared(data_dir, source, document, full=full) if document.state is DocumentState.READ else None
        if what is not None:
            code, text = what
            flaws.append(Flaw(code=code, text=f"{document.name} {text}", remedy=READ_AGAIN, source=source.id))
    return flaws


def _compared(data_dir: Path, source: Source, document: Document, *, full: bool) -> tuple[str, str] | None:
    try:
        with scan.original(data_dir, source, document) as file:
            if document.size != file.info.st_size:
                return "file_differs", "has another size than when it was read"
            if full and document.sha256:
                with os.fdopen(file.fd, "rb", closefd=False) as content:
                    if hashlib.file_digest(content, "sha256").hexdigest() != document.sha256:
                        return "file_differs", "is another file than the one that was read"
    except FileNotFoundError:
        return "file_missing", "no longer exists"
    except NotPlain as error:
        return "file_unreadable", f"cannot be read: it {error}"
    except OSError:
        return "file_unreadable", "cannot be read"
    return None


def of_rows(not_indexed: Sequence[Any], incomplete: Sequence[Any]) -> list[Flaw]:
    """The flaws found in the database: see ``store.kinds.knowledge.documents``. Pure."""
    flaws = [
        (source, "not_indexed", f"{plural(count, 'passage')} of {name} not in the full-text index")
        for source, name, count in not_indexed
    ]
    flaws += [
        (source, "incomplete", f"{name} has {there} of {plural(count, 'passage')}")
        for source, name, count, there in incomplete
    ]
    return [Flaw(code=code, text=text, remedy=REINDEX, source=SourceId(source)) for source, code, text in flaws]


def of_nothing(counts: Sequence[int], left: int) -> Iterator[Flaw]:
    """The orphans of all users. Pure.

    Args:
        counts: see ``checking.orphans``.
        left: kept files whose source is gone.
    """
    documents, passages, indexed, vectors = counts
    for count, text, remedy in (
        (documents, plural(documents, "document without a source", "documents without a source"), REMOVED),
        (passages, plural(passages, "passage without a document", "passages without a document"), REINDEX),
        (indexed, plural(indexed, "index entry without a passage", "index entries without a passage"), REINDEX),
        (vectors, plural(vectors, "vector without a passage", "vectors without a passage"), REINDEX),
        (left, plural(left, "file without a source", "files without a source"), "removed a day after it was kept"),
    ):
        if count:
            yield Flaw(code="orphans", text=text, remedy=remedy)
