"""The file that a document was made of: uploaded or fetched and kept in the data folder, or in a watched folder."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from klaw.config import safe_open
from klaw.config.safe_open import OpenedFile
from klaw.domain.knowledge import Document, Source, SourceKind

FOLDER = "knowledge"
"""Below the data folder: what was uploaded or fetched, by the ids of the sources."""


@contextmanager
def opened(data_dir: Path, source: Source, document: Document) -> Iterator[OpenedFile]:
    """Open it for reading. Blocks.

    Raises:
        FileNotFoundError: it is not there any more.
        safe_open.NotPlain: in its place is a link, a folder or something else that is not read.
        OSError: it cannot be read.
    """
    in_folder = source.kind is SourceKind.FOLDER
    root, name = (Path(source.where), document.name) if in_folder else (data_dir / FOLDER, str(source.id))
    with safe_open.opened(root, name) as file:
        yield file
