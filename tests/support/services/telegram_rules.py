"""What Telegram's documentation says of texts and buttons, enforced: the strict half of the emulator."""

import html
import re
from typing import Any

import attrs

MAX_UNITS, MAX_CAPTION, MAX_ENTITIES = 4096, 1024, 100
TAGS = {
    "b": "bold",
    "strong": "bold",
    "i": "italic",
    "em": "italic",
    "u": "underline",
    "ins": "underline",
    "s": "strikethrough",
    "strike": "strikethrough",
    "del": "strikethrough",
    "tg-spoiler": "spoiler",
    "span": "spoiler",
    "a": "text_link",
    "code": "code",
    "pre": "pre",
    "blockquote": "blockquote",
}
QUOTES = {"blockquote", "expandable_blockquote"}
AROUND_LINKS = {"bold", "italic", "underline", "strikethrough", "spoiler", *QUOTES}
_TOKEN = re.compile(
    r"<(?P<end>/?)(?P<tag>[A-Za-z-]+)(?P<attributes>(?:\s[^<>]*)?)>|&(?P<entity>#\d+|#x[0-9a-fA-F]+|[A-Za-z]+);"
    r"|(?P<bare>[<>&])|(?P<text>[^<>&]+)"
)
_ATTRIBUTES = re.compile(r'(?:\s+[a-z]+(?:="[^"<>]*")?)*\s*')
_ATTRIBUTE = re.compile(r'([a-z]+)(?:="([^"<>]*)")?')
_BARE = re.compile(r"&(?!(?:lt|gt|amp|quot|#\d+|#x[0-9a-fA-F]+);)")
_ADDRESS = re.compile(r"https?://(?:[^/?#\s]*\.[^/?#\s]|\[)\S*|tg://\S+", re.IGNORECASE)
_EMPTY = (
    "[\\s\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202f\u205f-\u206f"
    "\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0]*"
)


class ApiError(Exception):
    def __init__(self, status: int, description: str, **parameters: Any) -> None:
        super().__init__(description)
        self.status, self.description, self.parameters = status, description, parameters


def bad_request(text: str) -> ApiError:
    return ApiError(400, f"Bad Request: {text}")


@attrs.frozen
class Entity:
    type: str
    offset: int
    length: int
    value: str = ""
    """The address of a link, the language of a ``pre``."""


def units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


@attrs.define
class _Opened:
    tag: str
    type: str
    offset: int
    value: str


class _Reader:
    """Reads the API's HTML as its page "Formatting options" has it, and refuses what the service would only mend."""

    def __init__(self) -> None:
        self.text = ""
        self.entities: list[Entity] = []
        self._open: list[_Opened] = []

    def read(self, source: str) -> None:
        at = 0
        for token in _TOKEN.finditer(source):
            assert token.start() == at
            at = token.end()
            if token["bare"]:
                raise self._refused(f"unescaped {token['bare']}")
            if token["text"]:
                self.text += token["text"]
            elif token["entity"]:
                self._character(token["entity"])
            elif token["end"]:
                self._end(token["tag"])
            else:
                self._begin(token["tag"], token["attributes"])
        if self._open:
            raise self._refused(f'Can\'t find end tag corresponding to start tag "{self._open[-1].tag}"')

    def _refused(self, why: str) -> ApiError:
        return bad_request(f"can't parse entities: {why} at offset {units(self.text)}")

    def _character(self, name: str) -> None:
        if not name.startswith("#") and name not in ("lt", "gt", "amp", "quot"):
            raise self._refused(f"unknown HTML entity {name}")
        self.text += html.unescape(f"&{name};")

    def _end(self, tag: str) -> None:
        if not self._open:
            raise self._refused(f'Unexpected end tag "{tag}"')
        opened = self._open.pop()
        if opened.tag != tag:
            raise self._refused(f'Unmatched end tag, expected "</{opened.tag}>", found "</{tag}>"')
        if opened.type == "language":
            return
        length = units(self.text) - opened.offset
        if length:
            self.entities.append(Entity(opened.type, opened.offset, length, opened.value))

    def _begin(self, tag: str, source: str) -> None:
        if tag not in TAGS:
            raise self._refused(f'Unsupported start tag "{tag}"')
        if not _ATTRIBUTES.fullmatch(source) or _BARE.search(source):
            raise self._refused(f'broken attributes of "{tag}"')
        attributes = {name: html.unescape(value) for name, value in _ATTRIBUTE.findall(source)}
        kind, value = TAGS[tag], ""
        match tag, attributes:
            case "a", {"href": value, **rest} if not rest and _ADDRESS.fullmatch(value):
                pass
            case "a", _:
                raise self._refused("a link without a usable address, which would be left out,")
            case "span", {"class": "tg-spoiler"}:
                pass
            case "blockquote", {"expandable": "", **rest} if not rest:
                kind = "expandable_blockquote"
            case "code", {"class": language, **rest} if not rest and re.fullmatch("language-[^\\s<>]+", language):
                before = self._open[-1] if self._open else None
                if before is None or before.tag != "pre" or before.offset != units(self.text):
                    raise self._refused("a language outside of pre")
                before.value = language.removeprefix("language-")
                kind = "language"
            case _, {}:
                if attributes:
                    raise self._refused(f'unknown attributes of "{tag}"')
        self._may_stand_here(kind)
        self._open.append(_Opened(tag, kind, units(self.text), value))

    def _may_stand_here(self, kind: str) -> None:
        around = {opened.type for opened in self._open}
        allowed = {"code": QUOTES, "pre": QUOTES, "text_link": AROUND_LINKS, **{quote: set() for quote in QUOTES}}
        inside = allowed.get(kind, AROUND_LINKS | {"text_link"}) - {kind}
        if kind != "language" and not around <= inside:
            raise self._refused(f"{kind} inside of {around}")


def parsed(source: str, mode: str | None, most: int = MAX_UNITS) -> tuple[str, tuple[Entity, ...]]:
    """The text that people see, and its entities. Raises ApiError."""
    reader = _Reader()
    if mode is None:
        reader.text = source
    elif mode == "HTML":
        reader.read(source)
    else:
        raise bad_request("unsupported parse_mode")
    if re.search("[\ud800-\udfff]", reader.text):
        raise bad_request("strings must be encoded in UTF-8")
    entities = sorted(reader.entities, key=lambda each: (each.offset, -each.length))
    first = entities[0].offset if entities else units(reader.text)
    blank = len(reader.text) - len(reader.text.lstrip(" \n"))
    skipped = min(blank, first)  # blanks are of one unit each
    text = reader.text[skipped:].rstrip()
    entities = [attrs.evolve(each, offset=each.offset - skipped) for each in entities]
    if re.fullmatch(_EMPTY, text):
        raise bad_request("message text is empty")
    if units(text) > most:
        raise bad_request("message is too long" if most == MAX_UNITS else "message caption is too long")
    if len(entities) > MAX_ENTITIES:
        raise bad_request(f"{len(entities)} entities, of which all but {MAX_ENTITIES} would be left out")
    return text, tuple(entities)


def checked_keyboard(markup: Any) -> list[list[tuple[str, str]]]:
    """Label and data of the buttons, row by row. Raises ApiError."""
    if markup is None:
        return []
    if not isinstance(markup, dict) or set(markup) != {"inline_keyboard"}:
        raise bad_request("object expected as reply markup")
    rows = []
    for row in markup["inline_keyboard"]:
        if not 1 <= len(row) <= 8:
            raise bad_request("a row has 1 to 8 buttons")
        for button in row:
            if set(button) != {"text", "callback_data"} or not button["text"].strip():
                raise bad_request("inline keyboard button text can't be empty")
            if not 1 <= len(button["callback_data"].encode()) <= 64:
                raise bad_request("BUTTON_DATA_INVALID")
        rows.append([(button["text"], button["callback_data"]) for button in row])
    return rows
