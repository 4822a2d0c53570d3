"""JSON values to attrs classes and back, strictly: what comes from files, sockets, tool calls and models. Pure.

Nothing is coerced, ``True`` is not a number, and every error is a ``BadValue`` that names the field by its path
(``task.schedule.every``, ``topics[2].id``) and says what was expected, never what was there. A class needs only its
types; ``Annotated`` adds what they do not say, and a field with a default may be missing::

    Chat = Annotated[str, Check(chat_name)]               # checked or normalised by a function: ValueError says why not

    @attrs.frozen(kw_only=True)
    class Remember:
        user: Annotated[UserId, Wire("user_id")]          # has another name outside
        text: Annotated[str, Bounds(1, 2_000)]            # length of a text or a list, or value of a number
        kind: Literal["note", "fact"] = "note"            # a closed set; an enum is one, too
        rows: Annotated[tuple[int, ...], Form(members, ranges)]   # a form of its own: how it is read, how written
        day: Annotated[str | None, OMIT] = None           # not written while it has its default

    REQUESTS.read(tree, Remember)                         # raises BadValue
    JOURNAL.write(remember)                               # a dict, in the order of the fields

``JOURNAL`` and ``FRAMES`` ignore unknown fields, which a newer version wrote; ``REQUESTS`` refuses them. ``lenient``
forgives language models four mistakes that have only one meaning: a number or a boolean in quotes, a whole number
written as 5.0, a list or an object written as JSON in quotes, null for what has a default.

Large input costs little: a length is checked before the content, and reading stops after ``MOST_PROBLEMS``. Only the
journal, which Klaw wrote, may have any length.
"""

import difflib
import enum
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import islice
from types import UnionType
from typing import Annotated, Any, Literal, NoReturn, TypeAlias, TypeVar, Union, get_args, get_origin

import attrs
import cattrs
from cattrs.errors import ClassValidationError, ForbiddenExtraKeysError
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from klaw.errors import BadValue, Problem

T = TypeVar("T")
Hook: TypeAlias = Callable[[Any, Any], Any]

OMIT = object()
"""Marks a field that is not written while it has its default."""
MAX_WHOLE = 2**53 - 1
"""Largest number that every JSON reader keeps exactly."""
MAX_STORED = 2**62 - 1
"""Largest number of a log, whose sums SQLite has to hold."""
BAD_TEXT = "must not hold NUL or half a surrogate pair"
_HALF_PAIR = re.compile(r"[\ud800-\udfff]")
MOST_ENTRIES = 1_000
"""Limit for a list or an object from outside that has no ``Bounds`` of its own."""
MOST_PROBLEMS = 20
MOST_SUGGESTED, MOST_NAME = 3, 40
"""Unknown fields, and their characters, for which a similar name is suggested."""


@attrs.frozen
class Wire:
    name: str


@attrs.frozen
class Bounds:
    """Inclusive limits of a number's value, or of the length of a text, a list or an object. A length is checked before
    the content; with a ``Form``, only that of a list or an object."""

    at_least: float | None = None
    at_most: float | None = None
    pattern: str | None = None


@attrs.frozen
class Check:
    """A function that takes the value once its type is right and returns what is kept. Its ValueError says what was
    expected and never quotes the value."""

    function: Callable[[Any], Any]
    form: Bounds | None = None
    """What a schema can say of what the function checks."""


@attrs.frozen
class Form:
    """How a value is written where its type does not say. ``read`` gets JSON, raises ValueError or TypeError."""

    read: Callable[[Any], Any]
    write: Callable[[Any], Any]


_LISTS, _OBJECTS = (list, Sequence, tuple), (dict, Mapping)
_EXPECTED: dict[type, str] = {
    str: "must be a text",
    bool: "must be true or false",
    list: "must be a list",
    dict: "must be an object",
}


@attrs.frozen(eq=False)
class Converter:
    forbid_unknown: bool = False
    """Refuse a field that a class does not have."""
    journal: bool = False
    """Accept NUL and larger numbers, and check free JSON objects for what cannot be stored."""
    lenient: bool = False
    """Accept what models write."""
    most: int = MOST_ENTRIES
    """Entries of a list or an object without bounds of its own."""
    _inner: cattrs.Converter = attrs.field(factory=lambda: cattrs.Converter(detailed_validation=True), init=False)

    def read(self, value: object, cls: type[T]) -> T:
        """Raises BadValue."""
        try:
            return self._inner.get_structure_hook(cls)(value, cls)  # type: ignore[no-any-return]
        except Exception as error:  # noqa: BLE001  what is no fault of the value is raised again
            problems = tuple(islice(_problems(error, ""), MOST_PROBLEMS))
        raise BadValue(problems)

    def write(self, value: object) -> Any:
        return self._inner.unstructure(value)

    def __attrs_post_init__(self) -> None:
        inner, hook_factory = self._inner, self._inner.register_structure_hook_factory
        inner.register_structure_hook(str, self._text)
        inner.register_structure_hook(enum.StrEnum, lambda value, cls: _choice(tuple(cls))(value, cls))
        inner.register_structure_hook(int, self._whole)
        inner.register_structure_hook(float, self._number)
        inner.register_structure_hook(bool, lambda value, _: self._typed(value, bool))
        hook_factory(_has_origin(Literal), lambda cls: _choice(get_args(cls)))
        hook_factory(_has_origin(*_LISTS, *_OBJECTS), lambda cls: self._made(cls, Bounds()))
        hook_factory(attrs.has, self._class)
        hook_factory(_has_origin(Annotated), self._annotated)
        inner.register_unstructure_hook_func(
            lambda cls: _has_origin(*_OBJECTS)(cls) and get_args(cls)[1] is Any, lambda value: value
        )
        out_factory = inner.register_unstructure_hook_factory
        out_factory(attrs.has, lambda cls: make_dict_unstructure_fn(cls, inner, **_overrides(cls)))
        out_factory(_has_origin(Annotated), self._annotated_out)

    def _typed(self, value: Any, kind: type) -> Any:
        value = unquoted(value, kind) if self.lenient else value
        if type(value) is not kind:
            raise ValueError(_EXPECTED[kind])
        return value

    def _text(self, value: Any, _: object) -> str:
        if type(value) is not str:
            raise ValueError(_EXPECTED[str])
        if (not value.isascii() and _HALF_PAIR.search(value)) or ("\0" in value and not self.journal):
            raise ValueError(BAD_TEXT)
        return value

    def _whole(self, value: Any, _: object) -> int:
        value = unquoted(value, int) if self.lenient else value
        most = MAX_STORED if self.journal else MAX_WHOLE
        if type(value) is not int or not -most <= value <= most:
            raise ValueError(f"must be a whole number below 2^{most.bit_length()}")
        return value

    def _number(self, value: Any, _: object) -> float:
        value = unquoted(value, float) if self.lenient else value
        if type(value) not in (int, float) or not abs(value) <= MAX_WHOLE:  # NaN is in no range
            raise ValueError("must be a number below 2^53")
        return value  # type: ignore[no-any-return]

    def _few(self, value: Any, bounds: Bounds) -> Any:
        if bounds.at_most is None and not self.journal:
            bounds = attrs.evolve(bounds, at_most=self.most)
        return _within(bounds, value)

    def _made(self, cls: Any, bounds: Bounds) -> Hook:
        make = tuple if get_origin(cls) is tuple else list
        if is_object := get_origin(cls) in _OBJECTS:
            names, entry = get_args(cls)
            of_name = self._inner.get_structure_hook(names)
        else:
            entry = get_args(cls)[0]
        of_entry: Hook = (lambda value, _: value) if entry is Any else self._inner.get_structure_hook(entry)

        def entries(value: Any, _: object) -> Any:
            return make(_each(of_entry, entry, self._few(self._typed(value, list), bounds), "[{}]"))

        def members(value: Any, _: object) -> Any:
            given = self._few(self._typed(value, dict), bounds)
            if entry is not Any:
                named = _each(of_name, names, given, "[]")
                return dict(zip(named, _each(of_entry, entry, given.values(), "[]"), strict=True))
            if self.journal and not is_storable(given):
                raise ValueError("must hold nothing but valid JSON and text")
            return given

        return members if is_object else entries

    def _class(self, cls: Any) -> Hook:
        inner: Any = make_dict_structure_fn(
            cls, self._inner, _cattrs_forbid_extra_keys=self.forbid_unknown, **_overrides(cls)
        )
        defaulted = {wire_name(each) for each in attrs.fields(cls) if each.default is not attrs.NOTHING}
        most = MOST_ENTRIES + len(attrs.fields(cls))

        def read(value: Any, _: object) -> Any:
            value = self._typed(value, dict)
            if self.forbid_unknown and len(value) > most:
                raise ValueError(f"must have at most {most} members")
            if self.lenient:
                value = {name: each for name, each in value.items() if each is not None or name not in defaulted}
            return inner(value, cls)

        return read

    def _annotated(self, cls: Any) -> Hook:
        base, notes = cls.__origin__, cls.__metadata__
        some = _without_none(base)
        read = self._noted(some, notes)
        return read if some is base else lambda value, _: None if value is None else read(value, some)

    def _noted(self, base: Any, notes: Sequence[Any]) -> Hook:
        bounds = next((note for note in notes if isinstance(note, Bounds)), Bounds())
        if form := next((note for note in notes if isinstance(note, Form)), None):
            return lambda value, _: form.read(self._few(value, bounds) if type(value) in (list, dict) else value)
        is_text = getattr(base, "__supertype__", base) is str
        is_made = get_origin(base) in (*_LISTS, *_OBJECTS)
        hook: Hook = self._made(base, bounds) if is_made else self._inner.get_structure_hook(base)
        checks = [
            note.function if isinstance(note, Check) else partial(_within, note)
            for note in notes
            if isinstance(note, Check | Bounds)
        ]

        def read(value: Any, _: object) -> Any:
            if is_text and type(value) is str and bounds.at_most is not None and len(value) > bounds.at_most:
                _within(bounds, value)
            made = hook(value, base)
            for check in checks:
                made = check(made)
            return made

        return read

    def _annotated_out(self, cls: Any) -> Callable[[Any], Any]:
        if form := next((note for note in cls.__metadata__ if isinstance(note, Form)), None):
            return lambda value: None if value is None else form.write(value)
        return self._inner.get_unstructure_hook(cls.__origin__)


def _has_origin(*origins: object) -> Callable[[Any], bool]:
    return lambda cls: get_origin(cls) in origins


def _without_none(cls: Any) -> Any:
    left = [each for each in get_args(cls) if each is not type(None)]
    return left[0] if get_origin(cls) in (Union, UnionType) and len(left) == 1 else cls


def _each(hook: Hook, kind: Any, values: Iterable[Any], place: str) -> list[Any]:
    with suppress(Exception):  # below: what is no fault of the value is raised again
        return [hook(each, kind) for each in values]
    raise BadValue(tuple(islice(_wrong(hook, kind, values, place), MOST_PROBLEMS)))


def _wrong(hook: Hook, kind: Any, values: Iterable[Any], place: str) -> Iterator[Problem]:
    for at, each in enumerate(values):
        try:
            hook(each, kind)
        except Exception as error:  # noqa: BLE001  as in ``Converter.read``
            yield from _problems(error, place.format(at))


@cache
def _choice(values: tuple[Any, ...]) -> Hook:
    made = {str(value) if isinstance(value, str) else value: value for value in values}

    def read(value: Any, _: object) -> Any:
        found = made.get(value) if isinstance(value, str | int) else None
        if found is None or isinstance(value, bool) is not isinstance(found, bool):
            raise ValueError(f"must be one of {', '.join(map(str, values))}")
        return found

    return read


def _within(bounds: Bounds, value: Any) -> Any:
    sized = isinstance(value, str | Sequence | Mapping)
    low, high, size = bounds.at_least, bounds.at_most, len(value) if sized else value
    if (low is not None and size < low) or (high is not None and size > high):
        limits = f"at most {high}" if low is None else f"at least {low}" if high is None else f"{low} to {high}"
        unit = " characters" if isinstance(value, str) else " entries" if sized else ""
        raise ValueError(f"must {'have' if sized else 'be'} {limits}{unit}")
    if bounds.pattern is not None and not re.fullmatch(bounds.pattern, value):
        raise ValueError(f"must have the form {bounds.pattern}")
    return value


def unquoted(value: Any, kind: type) -> Any:
    """What a model meant that put a value into quotes; anything else unchanged."""
    numbers = (int, float)
    if type(value) is str:
        try:
            meant = json.loads(value.lower() if kind is bool else value)
        except (ValueError, RecursionError):
            return value
        value = meant if type(meant) is kind or (kind in numbers and type(meant) in numbers) else value
    return int(value) if kind is int and type(value) is float and value.is_integer() else value


def is_storable(value: object) -> bool:
    """Whether a value is JSON, without NaN and infinity, whose texts are valid."""
    with suppress(ValueError, TypeError, RecursionError):
        return not _HALF_PAIR.search(json.dumps(value, ensure_ascii=False, allow_nan=False))
    return False


def _notes(field: "attrs.Attribute[Any]") -> tuple[Any, ...]:
    return getattr(field.type, "__metadata__", ())


def wire_name(field: "attrs.Attribute[Any]") -> str:
    return next((note.name for note in _notes(field) if isinstance(note, Wire)), field.name)


def wire_names(cls: type[Any]) -> list[str]:
    """The names of a class's fields outside of Klaw, in their order."""
    return [wire_name(field) for field in attrs.fields(attrs.resolve_types(cls, include_extras=True))]


def _overrides(cls: Any) -> dict[str, Any]:
    return {
        field.name: override(rename=wire_name(field), omit_if_default=OMIT in _notes(field))
        for field in attrs.fields(attrs.resolve_types(cls, include_extras=True))
        if _notes(field)
    }


def _problems(error: BaseException, path: str) -> Iterator[Problem]:
    """The wrong fields in what cattrs raised, with the path from their notes."""
    if isinstance(error, ClassValidationError):
        inside, about_itself = error.group_exceptions()
        names = {field.name: wire_name(field) for field in attrs.fields(error.cl)}
        for inner, note in inside:
            yield from _problems(inner, _join(path, names[note.name]))
        for inner in about_itself:
            yield from _problems(inner, path)
    elif isinstance(error, ForbiddenExtraKeysError):
        known = [wire_name(field) for field in attrs.fields(error.cl)]
        short = sorted(name for name in error.extra_fields if len(name) <= MOST_NAME)[:MOST_SUGGESTED]
        close = [each for given in short for each in difflib.get_close_matches(given, known, n=1)]
        meant = f"; did you mean {close[0]}?" if close else ""
        yield Problem(path, f"unknown field; known are {', '.join(known) or 'none'}{meant}")
    elif isinstance(error, BadValue):
        yield from (Problem(_join(path, each.path), each.message) for each in error.problems)
    elif isinstance(error, KeyError):
        yield Problem(path, "is required")
    elif isinstance(error, ValueError | TypeError):
        yield Problem(path, str(error))
    else:
        raise error


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path and name and name[0] != "[" else path + name


JOURNAL = Converter(journal=True)
FRAMES = Converter()
REQUESTS = Converter(forbid_unknown=True)


MOST_VALUES = 100_000
"""Of one JSON text. More than any input needs; parsing so many holds all other threads for at most 0.1 s."""
_STRING_OR_SIGN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|([\[{,])', re.DOTALL)


def read_json(data: bytes) -> Any:
    """The value of a JSON text in UTF-8; its values are counted before any of them is made. Raises ValueError, which
    quotes the text, for other text and for more than ``MOST_VALUES``, RecursionError for one that is nested too
    deep."""
    if sum(map(data.count, (b"[", b"{", b","))) > MOST_VALUES:  # some of which may stand in texts
        left = MOST_VALUES
        for found in _STRING_OR_SIGN.finditer(data):
            left -= found.lastindex is not None
            if left < 0:
                raise ValueError(f"more than {MOST_VALUES} values")
    return _DECODER.decode(data.decode("utf-8-sig"))


def _refuse(_text: str) -> NoReturn:
    raise ValueError("NaN and Infinity are no JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse)
