"""Arguments, tables and types of answers that are made from the class of a noun, by the notes on its fields
(``domain.notes``)."""

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, NotRequired, TypedDict, get_origin

import attrs

from klaw.convert import REQUESTS, Bounds, Check, Form
from klaw.domain.notes import Column, Edit, Quotes, notes
from klaw.json_schema import SchemaType
from klaw.operations.lines import Table, details, minute
from klaw.operations.operation import OfUser, argument, something, without_none

LONG = 200
"""Characters; what may have more is also read from standard input."""


# -- arguments --------------------------------------------------------------------------------------------------------


def to_add(cls: type[Any], word: str, more: type[Any] | None = None) -> type[Any]:
    """The arguments of adding one: in ``fields`` its fields with ``Edit``, and those of ``more``. What must be given
    needs no option."""
    made = {}
    for field, note in editable(cls):
        kind, how = note.given or field.type, {"default": _plain_default(field), "option": note.option}
        if field.default is attrs.NOTHING:
            how |= {"positional": True, "words": True, "stdin": _is_long(kind)}
        made[note.name or field.name] = _argument(kind, note, **how)
    fields = argument(f"the {word}", default=attrs.NOTHING)
    return class_of(
        f"{cls.__name__}Add", {"fields": typed(class_of(f"New{cls.__name__}", made, more), fields)}, base=OfUser
    )


def to_edit(cls: type[Any], of_one: type[Any], more: type[Any] | None = None) -> type[Any]:
    """The arguments of changing one, beside those of ``of_one``: as ``to_add``, but nothing must be given, and an empty
    text empties an optional field. A field of ``more`` takes the place of one with its option."""
    own = {each.metadata["argument"].option for each in attrs.fields(more)} if more is not None else set()
    made = {}
    for field, note in editable(cls):
        if note.option is None or note.option not in own:
            given: Any = note.given or field.type
            read = _or_empty(given) if field.default is None else given | None
            made[note.name or field.name] = _argument(read, note, option=note.option, stdin=_is_long(given))
    inner: Any = class_of(f"{cls.__name__}Fields", made, more)
    fields = typed(Annotated[inner, Check(something, Bounds(1))], argument("what to change", default=attrs.NOTHING))
    return class_of(f"{cls.__name__}Edit", {"fields": fields}, base=of_one)


def editable(cls: type[Any]) -> "list[tuple[attrs.Attribute[Any], Edit]]":
    of_names = notes(cls, Edit)
    return [(field, of_names[field.name]) for field in attrs.fields(cls) if field.name in of_names]


def _argument(kind: Any, note: Edit, *, default: Any = None, **how: Any) -> Any:
    inner = without_none(kind)
    metavar = "N" if inner is int else "NAME" if get_origin(inner) is tuple else None
    more = {"title": note.title, "examples": note.offered}
    return typed(kind, argument(note.help, default=default, metavar=metavar, **more, **how))


def _plain_default(field: "attrs.Attribute[Any]") -> Any:
    default: Any = field.default
    return default.factory() if isinstance(default, attrs.Factory) else default  # type: ignore[arg-type]


def _is_long(kind: Any) -> bool:
    limits = [each.form if isinstance(each, Check) else each for each in getattr(kind, "__metadata__", ())]
    return any(isinstance(each, Bounds) and (each.at_most or 0) > LONG for each in limits)


def class_of(name: str, made: Mapping[str, Any], more: type[Any] | None = None, base: type[Any] = object) -> type[Any]:
    """A class with these fields, those of ``more`` and those of its base."""
    fields = attrs.fields(attrs.resolve_types(more, include_extras=True)) if more is not None else ()
    copied = {each.name: typed(each.type, attrs.field(default=each.default, metadata=each.metadata)) for each in fields}
    cls: type[Any] = attrs.make_class(name, {**made, **copied}, bases=(base,), frozen=True, kw_only=True, slots=True)
    return cls


def _or_empty(kind: Any) -> Any:
    """The type of an argument for an optional field: the field's, or an empty text."""

    def read(value: Any) -> Any:
        return value if value == "" else REQUESTS.read(value, kind)

    return Annotated[kind | None, Form(read, str), SchemaType(without_none(kind) | None)]


def own_fields(cls: type[Any], given: Any) -> dict[str, Any]:
    """The arguments by the names of the class's fields."""
    of_names = {name: note.name or name for name, note in notes(cls, Edit).items()}
    return {name: getattr(given, other) for name, other in of_names.items() if hasattr(given, other)}


def changes(cls: type[Any], given: Any) -> dict[str, Any]:
    """The fields to change with their new values; an optional one is emptied by an empty text."""
    optional = {field.name for field in attrs.fields(cls) if field.default is None}
    found = {name: value for name, value in own_fields(cls, given).items() if value is not None}
    return {name: None if value == "" and name in optional else value for name, value in found.items()}


def typed(kind: Any, made: Any) -> Any:
    """A field of ``argument`` with its type."""
    made.type = kind
    return made


# -- what is shown ----------------------------------------------------------------------------------------------------


def columns(cls: type[Any], more: Mapping[str, Column] | None = None, *, alone: bool = False) -> dict[str, Column]:
    """The columns of a list, the widest last. ``alone``: also those that only one thing alone shows."""
    ordered = sorted({**notes(cls, Column), **(more or {})}.items(), key=lambda each: each[1].wide)
    return {name: note for name, note in ordered if alone or not note.alone}


def cell(name: str, note: Column, value: Any) -> str:
    if value is None or value in ("", [], ()):
        return "-"
    if note.shown is not None:
        return note.shown(value)
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return minute(value) if name.endswith("_at") else str(value)


def table(cls: type[Any], rows: Sequence[Mapping[str, Any]], **more: Column) -> Table:
    """Things, one a line, with more columns; an optional column that none of them has is left out."""
    optional = {field.name for field in attrs.fields(cls) if field.default is None}
    shown = {
        name: note
        for name, note in columns(cls, more).items()
        if name not in optional or any(each[name] is not None for each in rows)
    }
    return _table(shown, [[cell(name, note, each[name]) for name, note in shown.items()] for each in rows])


def _table(shown: Mapping[str, Column], rows: Sequence[Sequence[str]], *before: str) -> Table:
    """``before``: heads of columns that stand before those of the fields."""
    head = [*before, *(note.title or name for name, note in shown.items())]
    right = {at for at, note in enumerate(shown.values(), len(before)) if note.right}
    return Table([head, *rows], right=frozenset(right | ({0} if before else set())))


def one(cls: type[Any], row: Mapping[str, Any], **more: Column) -> Table:
    found = [(name, note, row.get(name)) for name, note in {**notes(cls, Column), **more}.items()]
    return details(
        [(note.title or name, cell(name, note, value)) for name, note, value in found if value not in (None, "", [])]
    )


def versions(cls: type[Any], word: str, changes: Sequence[Mapping[str, Any]]) -> Table:
    """A history: what the thing is known by, and what was not always the same."""
    there = [each[word] for each in changes if each[word] is not None]
    shown = {
        name: note
        for name, note in columns(cls, alone=True).items()
        if not name.endswith("_at") and (name == head(cls) or len({str(each[name]) for each in there}) > 1)
    }
    with_what = any("what" in each for each in changes)
    rows, removed = [], [*["-"] * (len(shown) - 1), "(removed)"]
    for each in changes:
        now = each[word]
        cells = [cell(name, note, now[name]) for name, note in shown.items()] if now is not None else removed
        rows.append([str(each["entry"]), minute(each["at"]), *([each["what"]] if with_what else []), *cells])
    return _table(shown, rows, "entry", "at", *(["what"] if with_what else []))


def head(cls: type[Any]) -> str:
    """The field that people know one by."""
    return next(iter(notes(cls, Quotes)))


# -- answers ----------------------------------------------------------------------------------------------------------


def fields_of(
    name: str, cls: type[Any] | None, /, *without: str, maybe: Collection[str] | None = (), **more: Any
) -> Any:
    """The type of an object with the fields of a class but for some; None: of no class. ``maybe``: those that may be
    left out; None: all. ``more``: other fields with their types, also in place of one of the class."""
    made: Any = TypedDict
    fields = attrs.fields(attrs.resolve_types(cls, include_extras=True)) if cls is not None else ()
    kinds = {field.name: field.type for field in fields if field.name not in without}
    kept = {each: NotRequired[kind] if maybe is None or each in maybe else kind for each, kind in kinds.items()}
    return made(name, {**kept, **more})
