"""Tables with a column for each field of a class, named as in the logs: a new field needs its column, and no SQL."""

import enum
import json
from collections.abc import Callable, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Generic, TypeVar, get_args, get_origin

import apsw
import attrs

from klaw.convert import JOURNAL, Form, wire_name, wire_names

T = TypeVar("T")

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def dumps(value: Any) -> str:
    """Compact JSON, text as is."""
    return _ENCODER.encode(value)


def columns(cls: type[Any], table: str = "") -> str:
    """The columns, in the order of the fields; of a table or its alias."""
    return ", ".join(f"{table}.{name}" if table else name for name in wire_names(cls))


def reader(cls: type[T]) -> Callable[[Sequence[Any]], T]:
    """Makes an instance of a row of ``columns``."""
    resolved: Any = cls
    fields = attrs.fields(attrs.resolve_types(resolved, include_extras=True))
    names = [field.name for field in fields]
    made = [(field.name, make) for field in fields if (make := _maker(field.type)) is not None]

    def read(row: Sequence[Any]) -> T:
        values = dict(zip(names, row, strict=True))
        for name, make in made:
            if values[name] is not None:
                values[name] = make(values[name])
        return cls(**values)

    return read


def _maker(kind: Any) -> Callable[[Any], Any] | None:
    """What makes a field's value of a column's; None: it is the same."""
    forms = [note for note in getattr(kind, "__metadata__", ()) if isinstance(note, Form)]
    kind = _bare(kind)
    if get_origin(kind) is tuple and attrs.has(get_args(kind)[0]):
        return lambda text: JOURNAL.read(json.loads(text), kind)
    if get_origin(kind) is tuple:
        return lambda text: tuple(json.loads(text))
    if get_origin(kind) in (dict, Mapping):
        return json.loads
    if forms and attrs.has(kind):
        return lambda text: forms[0].read(json.loads(text))
    return kind if isinstance(kind, type) and issubclass(kind, enum.StrEnum | bool) else None


def documents(cls: type[Any]) -> set[str]:
    """The columns that hold JSON."""
    resolved = attrs.fields(attrs.resolve_types(cls, include_extras=True))
    return {wire_name(field) for field in resolved if get_origin(_bare(field.type)) in (dict, Mapping, tuple, list)}


def _bare(kind: Any) -> Any:
    while get_origin(kind) in (Annotated, UnionType):
        kind = get_args(kind)[0]
    return kind


def values(instance: Any) -> dict[str, Any]:
    """The columns' values by their names."""
    written = {**dict.fromkeys(wire_names(type(instance))), **JOURNAL.write(instance)}
    return {name: dumps(each) if isinstance(each, list | dict) else each for name, each in written.items()}


class Rows(Generic[T]):
    """The rows of a class in its table, which questions may call ``aka``; they have conditions and order only."""

    def __init__(self, cls: type[T], table: str, aka: str = "") -> None:
        self.columns = columns(cls, aka)
        self._select = f"SELECT {self.columns} FROM {table} {f'AS {aka} ' if aka else ''}"  # noqa: S608
        self.read = reader(cls)

    def all(self, connection: apsw.Connection, rest: str, *bindings: Any) -> list[T]:
        """``rest``: what follows the table's name."""
        return [self.read(row) for row in connection.execute(self._select + rest, bindings)]

    def one(self, connection: apsw.Connection, rest: str, *bindings: Any) -> T | None:
        row = connection.execute(self._select + rest, bindings).fetchone()
        return self.read(row) if row else None


def insert(table: str, cls: type[Any], *own: str) -> str:
    """The statement that stores ``values`` and more columns, by their names."""
    names = (*own, *wire_names(cls))
    return f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join(f':{name}' for name in names)})"  # noqa: S608


def upsert(table: str, cls: type[Any], key: str, *own: str) -> str:
    """The statement that stores ``values`` and more columns, or replaces the row that has the same key."""
    changed = ", ".join(f"{name} = excluded.{name}" for name in (*own, *wire_names(cls)))
    return f"{insert(table, cls, key, *own)} ON CONFLICT ({key}) DO UPDATE SET {changed}"
