"""Summaries of what left the window."""

from collections.abc import Sequence

import attrs

from klaw.domain.summary import NewSummary, Summary, ToolNote, check
from klaw.errors import SummaryOutdated
from klaw.store.engine.transaction import Transaction
from klaw.store.sql import messages, summaries
from klaw.store.sql.summaries import SUMMARY, Failure, SummaryPut


def put(
    tx: Transaction,
    new: NewSummary,
    *,
    supersedes: Sequence[int] = (),
    evicts: Sequence[int] = (),
    notes: Sequence[ToolNote] = (),
    as_of: int | None = None,
) -> Summary:
    """Store a summary of the oldest uncovered part of a chat's current segment, and forget the chat's failures.

    Refused when the segment is over or the summaries are not those that it was made from: another one may be there
    already, and two must not speak for the same messages, nor leave one out between them.

    Args:
        tx: the transaction.
        new: its range begins after all summaries that it does not supersede.
        supersedes: numbers of live summaries whose ranges it holds too.
        evicts: numbers of live summaries that make room for it.
        notes: on the tool calls of its range.
        as_of: the memory journal's last entry when the messages were read.

    Raises:
        SourceForgotten: the user has forgotten something since ``as_of``; nothing is stored.
        SummaryOutdated: the segment is over, or other summaries are there than it was made from; nothing is stored.
        StorageError: a value breaks its rule.
    """
    connection = tx.connection
    check(new)
    session = messages.session(connection, new.chat)
    if session is None or session.user != new.user or session.segment != new.segment:
        raise SummaryOutdated("the segment is over")
    tx.check_nothing_forgotten(new.user, as_of)
    present = {each.number: each for each in summaries.live(connection, new.chat, new.segment)}
    covered = summaries.covered_to(connection, new.chat, new.segment)
    replaced = [present.pop(number, None) for number in supersedes]
    if None in replaced or any(present.pop(number, None) is None for number in evicts):
        raise SummaryOutdated("it was made from summaries that are not there any more")
    held = [each for each in replaced if each is not None]
    first = min([new.first_seq, *(each.first_seq for each in held)])
    if (
        first != new.first_seq
        or not covered < new.last_seq <= session.last_seq
        or new.first_seq < session.segment_start
        or any(each.last_seq >= new.first_seq for each in present.values())
        or (not held and new.first_seq <= covered)
    ):
        raise SummaryOutdated("its range does not follow the summaries that are there")
    number = summaries.next_number(connection, new.chat)
    put = SummaryPut(
        **attrs.asdict(new, recurse=False),
        number=number,
        supersedes=tuple(supersedes),
        evicts=tuple(evicts),
        notes=tuple(notes),
    )
    tx.journal(SUMMARY.put(new.user, (new.chat, number), put, new.created_at))
    summaries.remove_failure(connection, new.chat)
    return put.summary


def note_failure(tx: Transaction, failure: Failure) -> None:
    """Remember that a chat's summary failed and when it may be tried again, also over a restart. It is no part of the
    logs."""
    summaries.put_failure(tx.connection, failure)
