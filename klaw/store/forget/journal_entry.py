"""What was forgotten, as the memory journal has it: numbers and ids only, never the text. Pure."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Self

import attrs

from klaw.convert import OMIT, Check, Form
from klaw.domain.fact import FactId
from klaw.domain.forget import fact_ids
from klaw.domain.names import ChatId, UserId
from klaw.domain.person import PersonId
from klaw.domain.task import TaskName, task_name
from klaw.domain.topic import TopicId
from klaw.store.changes import Change, RowIds
from klaw.store.kinds.summaries import read_key, summary_key


@attrs.frozen(kw_only=True)
class Forgetting:
    """What goes by one forgetting; nothing in the note that an earlier one is finished in every log."""

    messages: RowIds = ()
    """Also of what was made of them."""
    facts: tuple[FactId, ...] = ()
    topics: tuple[TopicId, ...] = ()
    """Made of the messages; they end."""
    summaries: tuple[Annotated[tuple[ChatId, int], Form(read_key, summary_key)], ...] = ()
    """Chat and number of those that were made of the messages."""
    people: tuple[PersonId, ...] = ()
    past: tuple[int, ...] = ()
    """Entries of the memory journal by which others once had names of these people: they say what those were last."""
    turns: tuple[str, ...] = ()
    """Whose receipts name these people, and are to do so no more."""
    runs: tuple[str, ...] = ()
    """Runs that name these people, and are to do so no more."""
    asked: Annotated[RowIds, OMIT] = attrs.Factory(lambda self: self.messages, takes_self=True)
    """Row ids of those that were named: their words are looked for elsewhere."""
    ran: Annotated[tuple[str, ...], OMIT] = ()
    """Runs that go: nothing but what they cost is left of them."""
    tasks: Annotated[tuple[Annotated[TaskName, Check(task_name)], ...], OMIT] = ()
    """Made of the messages; they were removed with them."""
    core: Annotated[bool, OMIT] = False
    """Whether something of it was in core memory: of what that was before nothing stays."""
    knowledge: Annotated[tuple[str, ...], OMIT] = ()
    """Ids of knowledge bases and sources that go, with their names and addresses."""
    used: Annotated[tuple[str, ...], OMIT] = ()
    """Turns whose receipts lose the texts of passages: those of ``knowledge``, or if that is empty all."""
    deleted: Annotated[tuple[Annotated[tuple[ChatId, int], Form(read_key, summary_key)], ...], OMIT] = ()
    """Chats that go as a whole, up to a ``seq``, with their titles."""
    undone: Annotated[tuple[str, ...], OMIT] = ()
    """Facts and people, by their ids, that go with the import that brought them: it may bring them again."""
    others: Annotated[Mapping[str, tuple[str, ...]], OMIT] = attrs.Factory(dict)
    """Keys of what goes of other kinds, by their words."""

    @property
    def gone(self) -> dict[str, tuple[str, ...]]:
        """Keys of all that goes as a whole with its history, by the words of kinds."""
        return {**self.others, "fact": self.facts, "person": self.people}


@attrs.frozen(kw_only=True)
class ForgetEntry(Forgetting):
    """One forgetting of the memory journal, or (``done``) the note that an earlier one is finished in every log."""

    entry: int
    time: str
    user: UserId
    done: int | None = None
    """Number of the entry that is finished."""

    @classmethod
    def of(cls, change: Change[Forgetting]) -> Self:
        values = {} if change.value is None else attrs.asdict(change.value, recurse=False)
        return cls(entry=change.entry, time=change.time, user=change.user, done=change.key, **values)


def together(entries: Sequence[ForgetEntry]) -> list[list[ForgetEntry]]:
    """Entries in their order, those of one forgetting together: the first names all messages that others take."""
    found: list[list[ForgetEntry]] = []
    asked: frozenset[int] = frozenset()
    for each in entries:
        same = bool(found) and (found[-1][0].user, found[-1][0].time) == (each.user, each.time)
        if same and each.asked and asked.issuperset(each.asked):
            found[-1].append(each)
        else:
            found.append([each])
            asked = frozenset(each.asked)
    return found


def merged(entries: Sequence[ForgetEntry]) -> ForgetEntry:
    """One forgetting of several entries: the first says all that goes but the messages that went by the others, and
    what was made of those meanwhile."""
    return attrs.evolve(
        entries[0],
        messages=tuple(sorted({one for each in entries for one in each.messages})),
        facts=fact_ids(one for each in entries for one in each.facts),
        topics=tuple(sorted({one for each in entries for one in each.topics})),
        summaries=tuple(sorted({one for each in entries for one in each.summaries})),
        used=tuple(dict.fromkeys(one for each in entries for one in each.used)),
    )
