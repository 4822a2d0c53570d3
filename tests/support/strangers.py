"""What somebody may ask who knows of another user's things: every argument of every class, made of its types."""

import enum
import inspect
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin
from unittest.mock import Mock

import apsw
import attrs
from starlette.routing import Route

from klaw.api.app import make_app
from klaw.api.rest import doors
from klaw.convert import wire_name
from klaw.operations.operation import without_none


@attrs.frozen
class Known:
    """What the stranger knows: by the names of arguments that it fits, and all of it for any text."""

    by_name: Mapping[str, Any]

    @property
    def words(self) -> list[str]:
        found = [each for each in self.by_name.values() if isinstance(each, str)]
        chat, fact, person = (self.by_name[name] for name in ("chat", "fact", "person"))
        return [*dict.fromkeys([*found, f"anna:{chat}", f"{chat}#1", f"fact:{fact}", f"person:{person}", fact[:10]])]

    def values(self, kind: Any) -> list[Any]:
        """Of a type, as JSON has them."""
        plain = without_none(kind)
        origin, inner = get_origin(plain), get_args(plain)
        if origin is Literal:
            return list(inner)
        if origin in (list, tuple, Sequence):
            return [[each] for each in self.values(inner[0])]
        if origin in (dict, Mapping):
            return [{each: 0} for each in self.values(inner[0])]
        if inspect.isclass(plain) and issubclass(plain, enum.StrEnum):
            return [each.value for each in plain]
        if inspect.isclass(plain) and attrs.has(plain):
            return list(self.calls(plain))
        return {bool: [True, False], int: [1, 2, 3], float: [1.0], bytes: ["aGk="]}.get(plain, self.words)

    def calls(self, cls: type[Any]) -> Iterator[dict[str, Any]]:
        """Arguments of a class: what fits, then each argument with everything. Another user only by itself: it is
        refused whatever else is asked."""
        fields = {wire_name(each): each for each in attrs.fields(attrs.resolve_types(cls, include_extras=True))}
        fitting = {name: self._fitting(each) for name, each in fields.items()}
        needed = {name: fitting[name] for name, each in fields.items() if each.default is attrs.NOTHING}
        whole = {name: fitting[name] for name in fields if name in needed or name in {*self.by_name} - {"user"}}
        yield needed
        yield whole
        for name, each in fields.items():
            yield from ({**whole, name: value} for value in self.values(each.type))

    def _fitting(self, field: "attrs.Attribute[Any]") -> Any:
        """An argument's value: what is known by its name, if it has its type."""
        named, values = self.by_name.get(field.name), self.values(field.type)
        return named if type(named) is type(values[0]) else values[0]


def other_routes() -> list[tuple[str, str]]:
    """Method and path of all that is no operation."""
    nothing = Mock()  # routes are only made with it
    nothing.services.config.allowed_origins = []
    app: Any = make_app(nothing)
    operations = {(each.method, each.path) for each in doors()}
    routes = [each for each in app._app.routes if isinstance(each, Route)]
    found = {(method, each.path) for each in routes for method in (each.methods or set()) - {"HEAD"}}
    return sorted(found - operations)


def rows_of(database: Path, user: str) -> dict[str, list[Any]]:
    """All that the database holds of a user."""
    connection = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
    with connection:
        named = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'vec%'"
        tables = [name for (name,) in connection.execute(named)]
        found = {}
        for table in tables:
            columns = [each[0] for each in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))]
            if "user_id" in columns:
                rows = connection.execute(f'SELECT * FROM "{table}" WHERE user_id = ?', (user,))
                found[table] = sorted(map(repr, rows))
    connection.close()
    return found
