"""What is moved in from another program: its origin, and how its messages and chats are called here. Pure.

Ids are hashes of source, chat and message, so a second import adds nothing. A message's channel names its import, so an
import is listed and undone by an index, without a record that a kill could lose."""

import hashlib
import re
import unicodedata
from typing import Annotated, Any, NewType

import attrs

from klaw.convert import Bounds, Check
from klaw.domain.attachment import MAX_FILES, NamedFile
from klaw.domain.message import Instant, MessageKind, Role
from klaw.domain.names import CLIENT_ID_FORM, MAX_CHAT_NAME, chat_name, client_id

ImportId = NewType("ImportId", str)
"""``chatgpt-20261123-061330-512``: the source, and when the import began (UTC)."""

ORIGIN = "import:"
WITH_TOPICS = "topics"
"""In the metadata of an imported message: the archivist may make topics of it."""
MAX_CHARS = 100_000
"""A longer message is imported in several."""
MAX_SAID = 1_000
MAX_KEPT = 100

_OF_RUN = re.compile(r"/([0-9]{1,9}|notice)\Z")
IMPORT_FORM = r"[a-z]{1,16}-[0-9]{8}-[0-9]{6}-[0-9]{3}"
_IMPORT = re.compile(IMPORT_FORM)


def import_id(text: str) -> str:
    if not _IMPORT.fullmatch(text):
        raise ValueError("must be an import's id, such as chatgpt-20261123-061330-512: klaw import list shows them")
    return text


def chat_prefix(source: str, key: str) -> str:
    """What the ids of all messages of one chat of a source begin with; the chat is found again by it, even renamed."""
    return f"{source}-{_digest(source, key)[:16]}"


def message_id(prefix: str, *key: str) -> str:
    return f"{prefix}.{_digest(*key)[:24]}"


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def project_base(user: str, key: str) -> str:
    """The id of the knowledge base of a user's project: the same in a later export."""
    return f"{key.partition('-')[0]}-{_digest(user, key)[:24]}"


def name_for(title: str, instead: str) -> str:
    """The name of a chat with this title; ``instead`` where nothing of the title may stand in a name."""
    text = unicodedata.normalize("NFC", title[: 4 * MAX_CHAT_NAME])
    kept = "".join(each if each in "_-." or unicodedata.category(each)[0] in "LNM" else " " for each in text)
    kept = re.sub(r"\.{2,}", ".", " ".join(kept.split()))
    while kept and not kept[0].isalnum():
        kept = kept[1:].lstrip()
    return chat_name(kept[:MAX_CHAT_NAME].rstrip() or instead)


def numbered(name: str, number: int) -> str:
    """A chat's name with a number, if that is not 1: ``Garden 2``."""
    end = f" {number}" if number > 1 else ""
    return f"{name[: MAX_CHAT_NAME - len(end)].rstrip()}{end}"


def _stored_id(text: str) -> str:
    """Check the id of a message, also of a run's: ``RUN/1``, ``RUN/notice``. Raises InvalidName."""
    client_id(_OF_RUN.sub("", text))
    return text


@attrs.frozen(kw_only=True)
class ImportedMessage:
    id: Annotated[str, Check(_stored_id, Bounds(pattern=rf"{CLIENT_ID_FORM}(/([0-9]{{1,9}}|notice))?"))]
    role: Role
    type: MessageKind = MessageKind.TEXT
    content: Annotated[str, Bounds(0, 4 * MAX_CHARS)]
    created_at: Instant
    metadata: dict[str, Any] = attrs.Factory(dict)
    files: Annotated[tuple[NamedFile, ...], Bounds(0, MAX_FILES)] = ()
