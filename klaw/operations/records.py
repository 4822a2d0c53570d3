"""The common operations of nouns, made from the noun's class with its notes and its ``Kind``: arguments, what a
terminal shows, types of answers, and handlers, unless a noun has more to do than to change a row::

    FACTS = Records(NOUN, Fact, "fact", "facts", kind=_kind)
    FACTS.declare("history")

    @FACTS.handler("edit", mcp="correct")
    async def edit(asked: Any, caller: Caller, parts: Parts) -> dict[str, Any]:
        '''Change a fact; what is not given stays as it is.'''
"""

from collections.abc import Awaitable, Callable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, TypeVar

import attrs

from klaw.errors import KlawError
from klaw.operations import record_fields, stored
from klaw.operations.handler import Caller, DatabaseParts, Parts
from klaw.operations.lines import Line, Lines
from klaw.operations.operation import Name, Noun, OfUser, OperationError, PagedArguments, Whole, argument, more
from klaw.operations.record_fields import cell, class_of, head, typed

if TYPE_CHECKING:
    from klaw.store.changes import Kind

What: TypeAlias = Literal["list", "show", "add", "edit", "delete", "history", "undo"]
H = TypeVar("H", bound=Callable[[Any, Caller, Parts], Awaitable[Any]])


# -- the operations ---------------------------------------------------------------------------------------------------

_typed_dict: Any = TypedDict
_list: Any = list

_HELP: dict[What, str] = {
    "list": "List the {many}, those changed last first.",
    "show": "Show a {word}.",
    "add": "Add a {word}.",
    "edit": "Change a {word}; what is not given stays as it is.",
    "delete": "Remove a {word}; its history stays, so that this can be undone.",
    "history": "Show all versions of a {word}, the oldest first.",
    "undo": "Undo the newest change of a {word}, also its removal or its creation.",
}


@attrs.frozen(eq=False)
class Records:
    """The operations of a noun.

    Args:
        cls: what they are about; for ``declare`` it has ``id``, ``user``, ``created_at`` and ``updated_at``.
        word, many: what one and several are called in arguments, answers and names of operations.
        kind: how the store keeps it; a function, because the command line imports no store.
        id_help: help of the argument that names one.
        shown: a class with more fields, which the answers have.
        adding, editing: classes with more arguments for adding and editing.
        unknown: makes what is raised where there is none of this id.
        meant: finds the id that an argument means, if it may be another text.
        what_happened: describes a change by the values before and after it.
        version, told: type of one in a history, and what makes it of a stored one.
    """

    noun: Noun
    cls: type[Any]
    word: str
    many: str
    kind: "Callable[[], Kind[Any]]" = attrs.field(kw_only=True)
    id_help: str = attrs.field(kw_only=True, default="its id as the list shows it, or the beginning of the id")
    shown: type[Any] = attrs.field(kw_only=True, default=attrs.Factory(lambda self: self.cls, takes_self=True))
    adding: type[Any] | None = attrs.field(kw_only=True, default=None)
    editing: type[Any] | None = attrs.field(kw_only=True, default=None)
    unknown: Callable[[], KlawError] | None = attrs.field(kw_only=True, default=None)
    meant: Callable[[str, Caller, Parts], Awaitable[str]] | None = attrs.field(kw_only=True, default=None)
    what_happened: Callable[[Any, Any], str] | None = attrs.field(kw_only=True, default=None)
    version: Any = attrs.field(kw_only=True, default=attrs.Factory(lambda self: self.cls, takes_self=True))
    told: Callable[[Any, Any], Any] = attrs.field(kw_only=True, default=lambda value, _parts: value)

    def handler(self, what: What, **how: Any) -> Callable[[H], H]:
        """Declare an operation with a handler of its own. ``how``: as for ``Noun.operation``; ``more``: further fields
        of the answer."""

        def declare(handler: H) -> H:
            if what == "list":
                self.noun.records.append(self)
            self.noun.add(f"{self.word}_{what}", handler=handler, **self._made(what, how))
            return handler

        return declare

    def declare(self, *whats: What, **how: Any) -> None:
        """Declare operations that only read or change rows."""
        for what in whats:
            self._declare(what, getattr(self, f"_{what}"), how)

    def _declare(self, what: What, carry_out: Callable[..., Awaitable[Any]], how: dict[str, Any]) -> None:
        async def handler(asked: Any, caller: Caller, parts: Any) -> Any:
            return await carry_out(asked, caller, parts)

        handler.__doc__ = _HELP[what].format(word=self.word, many=self.many)
        handler.__annotations__["parts"] = DatabaseParts if how.get("offline") else Parts
        self.handler(what, **how)(handler)

    def of_one(self, name: str = "Of", **fields: Any) -> type[Any]:
        named = argument(self.id_help, default=attrs.NOTHING, positional=True, id_of=self.word)
        return class_of(f"{name}{self.word.capitalize()}", {self.word: typed(Name, named), **fields}, base=OfUser)

    def answer(self, name: str, **fields: Any) -> Any:
        """The type of an answer that has one of them and these fields."""
        return _typed_dict(name, {self.word: self.shown, **fields})

    def _made(self, what: What, how: dict[str, Any]) -> dict[str, Any]:
        arguments, show, answer, answered = self._parts_of(what)
        answers = _typed_dict(answer, {**answered, **how.pop("more", {})})
        changes = what not in ("list", "show", "history")
        return {"arguments": arguments, "show": show, "answers": answers, "cli": what, "changes": changes, **how}

    def _parts_of(self, what: What) -> tuple[type[Any], Callable[..., Lines], str, dict[str, Any]]:
        """Arguments, what is shown, and name and fields of the answer."""
        name, word, shown = self.word.capitalize(), self.word, self.shown
        match what:
            case "list":
                page = {"user": str, "count": int, self.many: _list[shown], "next": int | None}
                return PagedArguments, self.list_lines, f"{name}Page", page
            case "show":
                return self.of_one(), self.one_lines, f"Shown{name}", {word: shown}
            case "add":
                return record_fields.to_add(self.cls, word, self.adding), self.one_lines, f"Added{name}", {word: shown}
            case "edit":
                edited = record_fields.to_edit(self.cls, self.of_one(), self.editing)
                return edited, self.one_lines, f"One{name}", {word: shown}
            case "delete":
                return self.of_one(), self.removed_lines, f"Removed{name}", {"removed": self.cls}
            case "history":
                change = {"entry": int, "at": str, **({"what": str} if self.what_happened else {})}
                changes = _list[_typed_dict(f"{name}Change", {**change, word: self.version | None})]
                return self.of_one(), self.history_lines, f"{name}History", {"user": str, "id": str, "changes": changes}
            case "undo":
                entry = typed(Whole | None, argument("go back to this entry of its history", metavar="N"))
                undone = {"id": str, word: self.cls | None, "revived": _list[self.cls]}
                return self.of_one("Undo", entry=entry), self.undone_lines, f"Undone{name}", undone

    # -- what is shown -------------------------------------------------------------------------------------------------

    def in_a_line(self, row: Mapping[str, Any]) -> tuple[str, str]:
        known_by, shown = head(self.cls), []
        for name, note in record_fields.columns(self.cls).items():
            if name not in ("id", known_by) and row[name] not in (None, "", []):
                shown.append(cell(name, note, row[name]))
        return str(row[known_by]), ", ".join(shown)

    def list_lines(self, answer: dict[str, Any]) -> Lines:
        if not answer[self.many]:
            none = f"no {self.many}: `klaw {self.noun.word} add {head(self.cls).upper()}` adds one"
            return [f"no more {self.many}" if answer["count"] else none]
        return [record_fields.table(self.shown, answer[self.many]), *more(answer)]

    def one_lines(self, answer: dict[str, Any]) -> Lines:
        return [record_fields.one(self.shown, answer[self.word])]

    def removed_lines(self, answer: dict[str, Any]) -> list[Line]:
        gone = answer["removed"]
        return [f"removed {self._called(gone)}", f"to undo this: klaw {self.noun.word} undo {gone['id']}"]

    def history_lines(self, answer: dict[str, Any]) -> Lines:
        return [record_fields.versions(self.cls, self.word, answer["changes"])]

    def undone_lines(self, answer: dict[str, Any]) -> Lines:
        now = self.one_lines(answer) if answer[self.word] is not None else [f"removed {answer['id']}"]
        return [*now, *(f"restored: {self._called(each)}" for each in answer["revived"])]

    def _called(self, row: Mapping[str, Any]) -> str:
        return f"{row['id']}: {row[head(self.cls)]}"

    # -- handlers of what is kept without more ado ---------------------------------------------------------------------

    def none_such(self) -> KlawError:
        if self.unknown is not None:
            return self.unknown()
        return OperationError(f"unknown_{self.word}", f"there is no {self.word} with this id", field=self.word)

    async def id_of(self, asked: Any, caller: Caller, parts: Any) -> str:
        named: str = getattr(asked, self.word)
        return named if self.meant is None else await self.meant(named, caller, parts)

    async def _list(self, asked: PagedArguments, caller: Caller, parts: DatabaseParts) -> dict[str, Any]:
        kind = self.kind()
        total = await parts.readers.run(stored.records.count, kind, caller.user)
        found = await parts.readers.run(stored.records.page, kind, caller.user, asked.limit, asked.offset)
        return {"user": caller.user, "count": total, self.many: found, "next": asked.following(total)}

    async def _show(self, asked: Any, caller: Caller, parts: DatabaseParts) -> dict[str, Any]:
        found = await parts.readers.run(self.kind().get, caller.user, await self.id_of(asked, caller, parts))
        if found is None:
            raise self.none_such()
        return {self.word: found}

    async def _add(self, asked: Any, caller: Caller, parts: Parts) -> dict[str, Any]:
        at, fields = parts.now(), record_fields.own_fields(self.cls, asked.fields)
        made = self.cls(id=parts.core.new_id(), user=caller.user, created_at=at, updated_at=at, **fields)
        return {self.word: await self._put(made, at, parts)}

    async def _edit(self, asked: Any, caller: Caller, parts: Parts) -> dict[str, Any]:
        present, at = (await self._show(asked, caller, parts))[self.word], parts.now()
        changed = attrs.evolve(present, **record_fields.changes(self.cls, asked.fields))
        if changed != present:
            changed = await self._put(attrs.evolve(changed, updated_at=at), at, parts)
        return {self.word: changed}

    async def _put(self, value: Any, at: str, parts: Parts) -> Any:
        return await parts.writer.run(stored.records.put, self.kind(), value, at)

    async def _delete(self, asked: Any, caller: Caller, parts: Parts) -> dict[str, Any]:
        present = (await self._show(asked, caller, parts))[self.word]
        await parts.writer.run(stored.records.remove, self.kind(), caller.user, present.id, parts.now())
        return {"removed": present}

    async def _history(self, asked: Any, caller: Caller, parts: DatabaseParts) -> dict[str, Any]:
        named, past = await self._past(asked, caller, parts)
        changed = [
            {
                "entry": now.entry,
                "at": now.time,
                **({"what": self.what_happened(before and before.value, now.value)} if self.what_happened else {}),
                self.word: None if now.value is None else self.told(now.value, parts),
            }
            for before, now in pairwise((None, *past))
            if now is not None
        ]
        return {"user": caller.user, "id": named, "changes": changed}

    async def _undo(self, asked: Any, caller: Caller, parts: Parts) -> dict[str, Any]:
        named, _ = await self._past(asked, caller, parts)
        value = await parts.writer.run(stored.records.undo, self.kind(), caller.user, named, asked.entry, parts.now())
        return {"id": named, self.word: value, "revived": []}

    async def _past(self, asked: Any, caller: Caller, parts: DatabaseParts) -> tuple[str, list[Any]]:
        """The id of what is meant, and all that it was. Raises what ``none_such`` makes."""
        named = await self.id_of(asked, caller, parts)
        past = await parts.readers.run(self.kind().history, caller.user, named)
        if not past:
            raise self.none_such()
        return named, past
