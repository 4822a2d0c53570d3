"""Summaries as JSON values of the memory journal. Pure."""

from typing import Any

import attrs

from klaw.config.paths import encode_name
from klaw.domain.names import ChatId, UserId
from klaw.domain.summary import MAX_NOTE, NewSummary, Summary, ToolNote, check
from klaw.store.fields import text, whole

COPIES = "summaries"


@attrs.frozen(kw_only=True)
class SummaryPut:
    """A summary that was stored, and what it did to the others of its segment: one line, so that a kill leaves all of
    it or nothing."""

    summary: Summary
    supersedes: tuple[int, ...] = ()
    """Numbers of the summaries whose ranges it holds now."""
    evicts: tuple[int, ...] = ()
    """Numbers of the summaries that had to make room."""
    notes: tuple[ToolNote, ...] = ()


def summary_key(chat: ChatId, number: int) -> str:
    return f"{chat}#{number}"


def copy_path(chat: ChatId, number: int) -> str:
    """Where the Markdown copy of a summary is, relative to the data folder. The chat's name is encoded, so it leads
    nowhere else."""
    return f"{COPIES}/{encode_name(chat)}/{number:04d}.md"


def read_key(key: str) -> tuple[ChatId, int]:
    """Chat and number of a key. Raises ValueError."""
    chat, mark, number = key.rpartition("#")
    if not mark or ":" not in chat or not number.isdecimal():
        raise ValueError("key is no summary's")
    return ChatId(chat), whole(int(number))


def summary_value(put: SummaryPut) -> dict[str, Any]:
    """Everything but whose it is, its chat and its number: the journal's line has those beside it."""
    summary = put.summary
    return {
        "segment": summary.segment,
        "first_seq": summary.first_seq,
        "last_seq": summary.last_seq,
        "text": summary.text,
        "tokens": summary.tokens,
        "model": summary.model,
        "created_at": summary.created_at,
        "prompt_tokens": summary.prompt_tokens,
        "completion_tokens": summary.completion_tokens,
        "supersedes": list(put.supersedes),
        "evicts": list(put.evicts),
        "notes": [attrs.asdict(note) for note in put.notes],
    }


def read_summary(user: UserId, chat: ChatId, number: int, value: dict[str, Any]) -> SummaryPut:
    """The put of a value. Raises KeyError, TypeError or ValueError for a malformed one."""
    draft = NewSummary(
        user=user,
        chat=chat,
        segment=whole(value["segment"]),
        first_seq=whole(value["first_seq"]),
        last_seq=whole(value["last_seq"]),
        text=text(value["text"]),
        tokens=whole(value["tokens"]),
        model=text(value["model"]),
        created_at=text(value["created_at"]),
        prompt_tokens=whole(value["prompt_tokens"]),
        completion_tokens=whole(value["completion_tokens"]),
    )
    check(draft)
    return SummaryPut(
        summary=numbered(draft, number),
        supersedes=tuple(whole(other) for other in value["supersedes"]),
        evicts=tuple(whole(other) for other in value["evicts"]),
        notes=tuple(_note(note) for note in value["notes"]),
    )


def numbered(draft: NewSummary, number: int) -> Summary:
    return Summary(**attrs.asdict(draft, recurse=False), number=number)


def _note(value: dict[str, Any]) -> ToolNote:
    note = ToolNote(
        seq=whole(value["seq"]), call=text(value["call"]), tool=text(value["tool"]), text=text(value["text"])
    )
    if len(note.text) > MAX_NOTE or not note.text.strip():
        raise ValueError("a note is empty or too long")
    return note
