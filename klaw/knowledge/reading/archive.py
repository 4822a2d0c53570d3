"""Documents that are archives of XML: looked through before anything is unpacked, and unpacked within limits."""

import io
import posixpath
import re
import zipfile
import zlib
from typing import Any, BinaryIO, Self

from klaw.knowledge.reading.output import UnreadableError

MAX_RATIO = 200
"""Text that is packed smaller than this is made to fill a machine's memory."""
BOMB_BYTES = 16 * 1024 * 1024
"""Unpacked; a smaller part does no harm whatever its ratio."""
CHUNK_BYTES = 1 << 20
DRAWING = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
"""Of text in boxes and pictures."""
_XML = (".xml", ".rels")


class Archive:
    """A zip file. Raises UnreadableError: it is damaged, needs a password, or unpacks to more than may be. No part is
    larger than it says: ``zipfile`` reads no further."""

    def __init__(self, file: BinaryIO, unpacked_bytes: int) -> None:
        try:
            self._zip = zipfile.ZipFile(file)
        except zipfile.BadZipFile:
            raise UnreadableError("broken", "is a damaged archive, or only a part of one") from None
        parts = self._zip.infolist()
        self.names = {part.filename for part in parts}
        whole = sum(part.file_size for part in parts)
        if whole > unpacked_bytes:
            raise UnreadableError(
                "unpacks_too_large", f"unpacks to {whole >> 20:,} MB; {unpacked_bytes >> 20:,} MB are the limit"
            )
        for part in parts:
            if part.flag_bits & 1:
                raise UnreadableError("encrypted", "is protected by a password: save it without one")
            if part.file_size > max(BOMB_BYTES, MAX_RATIO * part.compress_size):
                raise UnreadableError(
                    "unpacks_too_large", f"has a part that unpacks to {part.file_size >> 20:,} MB of nearly nothing"
                )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    def read(self, name: str, most: int = BOMB_BYTES * 4) -> bytes:
        """A part. Raises KeyError; UnreadableError: it is damaged, or larger than ``most`` bytes."""
        part = self._zip.getinfo(name)
        if part.file_size > most:
            raise UnreadableError("too_large", f"has a part of {part.file_size >> 20:,} MB; {most >> 20} are the limit")
        try:
            return self._zip.read(part)
        except (zipfile.BadZipFile, EOFError, NotImplementedError, OSError, zlib.error) as error:
            raise UnreadableError("broken", f"is a damaged archive ({type(error).__name__})") from None

    def xml(self, name: str) -> Any:
        """The root of a part; nothing is taken from elsewhere, and no entities are replaced."""
        from lxml import etree

        data = self.read(name)
        refuse_entities(data)
        parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
        return etree.fromstring(data, parser)

    def related(self, part: str, kind: str) -> list[str]:
        """The parts of a kind to which a part of an office file refers, or the file itself: ``""``."""
        folder, _, name = part.rpartition("/")
        relations = posixpath.join(folder, "_rels", f"{name}.rels")
        if relations not in self.names:
            return []
        found = (
            posixpath.normpath(posixpath.join("/", folder, each.get("Target", ""))).removeprefix("/")
            for each in self.xml(relations)
            if isinstance(each.tag, str) and each.get("Type", "").endswith(f"/{kind}")
        )
        return sorted({name for name in found if name in self.names})

    def check_xml(self, sought: re.Pattern[bytes] | None = None) -> bool:
        """Returns whether something short that is sought is in its XML. Raises UnreadableError for entities."""
        found = False
        for name in sorted(self.names):
            if name.lower().endswith(_XML):
                with self._zip.open(name) as part:
                    before = b""
                    while chunk := part.read(CHUNK_BYTES):
                        refuse_entities(before + chunk)
                        found = found or (sought is not None and sought.search(chunk) is not None)
                        before = chunk[-64:]
        return found

    def behind(self, name: str, mark: bytes) -> bytes:
        """What stands in a part behind the last of some marks; nothing if that is more than a few megabytes."""
        rest, found = b"", False
        with self._zip.open(name) as part:
            while chunk := part.read(CHUNK_BYTES):
                _, marked, rest = (rest + chunk).rpartition(mark)
                found = found or bool(marked)
                if not found:
                    rest = rest[-len(mark) :]
                elif len(rest) > 4 * CHUNK_BYTES:
                    return b""
        return rest if found else b""

    def slim(self) -> BinaryIO:
        """The archive with its XML only; of pictures and films only the names: libraries load all that they find."""
        self.check_xml()
        slim = io.BytesIO()
        with zipfile.ZipFile(slim, "w", zipfile.ZIP_STORED) as copy:
            for name in sorted(self.names):
                copy.writestr(zipfile.ZipInfo(name), self.read(name) if name.lower().endswith(_XML) else b"")
        slim.seek(0)
        return slim


def refuse_entities(data: bytes) -> None:
    """Raises UnreadableError when XML declares entities: office files have none, and they can be nested endlessly."""
    if b"<!ENTITY" in data.replace(b"\0", b""):
        raise UnreadableError("not_allowed", "declares entities, which could fill the memory")
