"""Knowledge bases: who may do what with one, where its knowledge comes from, and what is cited of it. Pure.

A base has members, each with a role, and sources. A source has documents (a graph has none), and a document passages,
which are what is searched, shown to the model and cited."""

import enum
import hashlib
from collections.abc import Mapping
from typing import Annotated, Literal, NewType

import attrs

from klaw.convert import OMIT, Bounds, Check, Wire
from klaw.domain.names import UserId, user_id
from klaw.domain.notes import Column, Edit, Quotes
from klaw.domain.text import clean_output, title
from klaw.errors import InvalidValue

BaseId = NewType("BaseId", str)
SourceId = NewType("SourceId", str)
DocumentId = NewType("DocumentId", str)

MAX_NAME = 80
MAX_DESCRIPTION = 2_000
MAX_MEMBERS = 100
MAX_BASES = 16
"""That one chat is bound to."""
MAX_WHERE = 2_000
"""Characters of a path or an address."""


class BaseRole(enum.StrEnum):
    """What a member may do: a viewer asks and reads, an editor also changes sources, the owner everything."""

    OWNER = "owner"
    EDITOR = "editor"
    VIEWER = "viewer"


def base_name(text: str) -> str:
    """A base's name as it is kept: one line. Raises InvalidValue."""
    if name := title(text, MAX_NAME):
        return name
    raise InvalidValue(f"has 1 to {MAX_NAME} characters")


_Name = Annotated[str, Check(base_name, Bounds(1, MAX_NAME))]
_Description = Annotated[str, Bounds(0, MAX_DESCRIPTION), Check(clean_output)]


@attrs.frozen(kw_only=True)
class Base:
    """A knowledge base. Times are ISO-8601 UTC."""

    id: Annotated[BaseId, Column("base")]
    user: Annotated[UserId, Wire("user_id")]
    name: Annotated[
        _Name, Quotes(), Edit("the base's name, which no other base of yours has", title="Name"), Column(wide=True)
    ]
    description: Annotated[
        _Description, Quotes(), Edit("what is in it", title="What is in it"), Column("about", alone=True)
    ] = ""
    language: Annotated[
        str,
        Bounds(0, 3, r"([a-z]{2,3})?"),
        Edit("code of the language of most texts, such as en or ru", title="Language of most texts"),
        Column(alone=True),
    ] = ""
    """ISO 639 code; empty if unknown."""
    members: Annotated[Mapping[Annotated[str, Check(user_id)], Literal["editor", "viewer"]], Bounds(0, MAX_MEMBERS)] = (
        attrs.Factory(dict)
    )
    created_at: str
    updated_at: Annotated[str, Column("changed", alone=True)]
    of_messages: Annotated[Literal[True] | None, OMIT] = None
    """It has the files of its owner's messages, and no list shows it."""


class SourceKind(enum.StrEnum):
    FILE = "file"
    FOLDER = "folder"
    """Watched; its files stay where they are."""
    WEB = "web"
    RDF = "rdf"
    """A graph in an uploaded file."""
    SPARQL = "sparql"
    """A graph behind a SPARQL 1.1 endpoint."""
    MESSAGES = "messages"
    """The files of a user's messages; each document is named as the first message with it named it."""


@attrs.frozen(kw_only=True)
class Source:
    id: SourceId
    user: Annotated[UserId, Wire("user_id")]
    """The base's owner, whoever added it."""
    base: Annotated[BaseId, Wire("base_id")]
    kind: SourceKind
    name: Annotated[str, Quotes(), Bounds(1, MAX_WHERE)]
    """What people call it: a file's or folder's name, a page's address."""
    where: Annotated[str, Wire("place"), Quotes(), Bounds(0, MAX_WHERE)] = ""
    """A folder's absolute path; the address of a page or an endpoint, or the endpoint's name in ``kb.endpoints``."""
    sha256: str = ""
    """The SHA-256 of the kept bytes; ``size`` is their number."""
    size: int = 0
    added_by: str
    """A user; empty: the operator."""
    created_at: str
    updated_at: str


class DocumentState(enum.StrEnum):
    WAITING = "waiting"
    READ = "read"
    """Its passages are there; ``problems`` names pages that could not be read."""
    FAILED = "failed"
    """It could not be read; ``problems`` says why."""


@attrs.frozen(kw_only=True)
class DocumentProblem:
    code: str
    """Such as ``encrypted``."""
    text: str
    """For people: document and page, what is wrong, what can be done. Never a text of the document."""
    page: Annotated[int | None, OMIT] = None


@attrs.frozen(kw_only=True)
class Document:
    """A document as it was when last looked at; made from its source, not from the logs."""

    id: DocumentId
    base: Annotated[BaseId, Wire("base_id")]
    source: Annotated[SourceId, Wire("source_id")]
    name: str
    """A path below the source; the name of a file or a page."""
    title: str = ""
    format: str = ""
    language: str = ""
    size: int = 0
    stamp: str = ""
    """Changes with the file: quicker to look at than ``sha256``."""
    sha256: str = ""
    state: DocumentState = DocumentState.WAITING
    pages: int = 0
    words: int = 0
    passages: int = 0
    digest: str = ""
    """SHA-256 of its passages."""
    problems: tuple[DocumentProblem, ...] = ()
    read_at: str = ""


def what_was_read(document: Document) -> str:
    """What was read of a document, for its user, such as ``12 pages, 5,100 words``; or why nothing."""
    if document.state is DocumentState.WAITING:
        return "It is being read."
    problems = document.problems
    if document.state is DocumentState.FAILED:
        # Of a scan its first page says more than that there is no text. The list of formats is left out.
        why = problems[0 if problems[-1].code == "no_text" else -1].text.removeprefix(document.name)
        return f"Not read: it {why.partition(': ')[2].partition(';')[0]}"
    read = f"{document.words:,} words"
    if document.pages:
        read = f"{document.pages:,} pages, {read}" if document.pages > 1 else f"1 page, {read}"
    return f"{read} ({problems[-1].text.removeprefix(document.name).lstrip(':, ')})" if problems else read


def document_id(source: SourceId, name: str) -> DocumentId:
    """The id of a document, the same whenever the database is rebuilt."""
    return DocumentId(hashlib.sha256(f"{source}\0{name}".encode("utf-8", "surrogatepass")).hexdigest()[:20])


@attrs.frozen(kw_only=True)
class Block:
    """A piece of a document as it was read: a paragraph, a table, a listing."""

    text: str
    page: int | None = None
    """From 1; None for a format without pages."""
    headings: tuple[str, ...] = ()
    kind: Literal["text", "table", "code"] = "text"


@attrs.frozen(kw_only=True)
class DocumentText:
    """What was read of a document that is in no base, with its pages marked; ``problems`` are for people."""

    title: str
    text: str
    cut: bool
    """It has more text than was asked for."""
    problems: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class Passage:
    """A piece of a document that is searched, shown and cited as a whole."""

    ordinal: int
    text: str
    heading: str = ""
    """The headings that it stands under, outermost first, with `` > `` between them."""
    first_page: int | None = None
    last_page: int | None = None
    start: int
    """Where it begins in the document's text, in characters."""
    end: int
    tokens: int


@attrs.frozen(kw_only=True)
class Place:
    """Where a passage stands."""

    base: BaseId
    source: SourceId
    document: DocumentId | None = None
    """None for a graph."""
    name: str
    heading: Annotated[str, OMIT] = ""
    first_page: Annotated[int | None, OMIT] = None
    last_page: Annotated[int | None, OMIT] = None
    start: Annotated[int | None, OMIT] = None
    end: Annotated[int | None, OMIT] = None


@attrs.frozen(kw_only=True)
class UsedPassage(Place):
    """A passage, or something that a graph says, as the model was given it: what ``[n]`` in an answer refers to."""

    number: int
    also: Annotated[tuple[Place, ...], OMIT] = ()
    score: float = 0.0
    cited: bool = False
    text: Annotated[str, OMIT] = ""
    """The text that the model was given: the document may change later."""
    iri: Annotated[str, OMIT] = ""
    sparql: Annotated[str, OMIT] = ""
