"""``klaw export``: what Klaw keeps of a user as one folder, as Markdown for people and as JSON for programs."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs

from klaw.cli.operations import Here, ask, command
from klaw.cli.output import new_folder, write_document
from klaw.config.paths import Paths
from klaw.domain.text import counted, one_line
from klaw.operations.chats import escaped
from klaw.operations.operation import Noun, OfUser, argument
from klaw.operations.perform import nouns, operations, read
from klaw.operations.records import Records

if TYPE_CHECKING:
    from klaw.store.changes import Kind

NOUN = Noun("export", "write chats and memory into a folder, as Markdown and JSON (docs/import.md)", local=True)
PAGE = 100
MAX_NAME_BYTES = 200

Ask = Callable[..., dict[str, Any]]


@attrs.frozen(kw_only=True)
class ExportArguments(OfUser):
    to: str = argument(
        "the folder; it must be empty, or not be there (default: klaw-export)", default="klaw-export", metavar="DIR"
    )


def _shown(answer: dict[str, Any]) -> list[str]:
    counts = ", ".join(counted(count, many) for many, count in answer.items() if many != "folder")
    return [f"{answer['folder']}: {counts}"]


@command(NOUN, "export", ExportArguments, cli="", show=_shown)
def export(asked: ExportArguments, here: Here) -> dict[str, Any]:
    """Write chats, facts, people, topics, summaries, tasks and knowledge bases into a folder. `klaw import klaw DIR`
    reads it into another Klaw.

    It runs beside a server or without one. Files that were sent are not in it: klaw backup has them.
    """
    from klaw.store.kinds.records import KINDS

    asking = partial(_ask, here.paths, asked.user)
    chats = _chats(asking)
    folder = new_folder(asked.to, "to")
    (folder / "chats").mkdir(mode=0o700)
    counts, summaries, taken = {"chats": len(chats), "messages": 0}, [], set[str]()
    for done, chat in enumerate(chats):
        here.progress.show("chats", done, len(chats))
        counts["messages"] += chat["messages"]
        file_name = _file_name(chat["name"], taken)
        for form, ending in (("markdown", "md"), ("json", "json")):
            texts = _parts(asking, chat["name"], form)
            write_document(texts, str(folder / "chats" / f"{file_name}.{ending}"))
        summaries += asking("chats_summaries", chat=chat["name"])["summaries"]
    here.progress.show("chats", len(chats), len(chats))
    kinds: dict[str, tuple[Iterable[dict[str, Any]], Callable[[dict[str, Any]], str]]] = {
        **{each.many: (_pages(asking, f"{each.word}_list", each.many), partial(_line, each)) for each in _kept()},
        "topics": (_topics(asking), _topic),
        "summaries": (summaries, _summary),
    }
    for kind in (each for each in KINDS if each.moves and each.plural not in kinds):
        kinds[kind.plural] = _pages(asking, "export_records", "records", what=kind.what), partial(_record, kind)
    for name, (found, line) in kinds.items():
        things = list(found)
        counts[name] = len(things)
        write_document(iter([json.dumps(things, ensure_ascii=False, indent=1) + "\n"]), str(folder / f"{name}.json"))
        text = "\n".join([f"# {name.capitalize()}\n", *map(line, things)])
        write_document(iter([f"{text}\n"]), str(folder / f"{name}.md"))
    return {"folder": str(folder), **counts}


def _ask(paths: Paths, user: str | None, name: str, **args: Any) -> dict[str, Any]:
    given = {**args, **({"user": user} if user is not None else {})}
    return ask(paths, read(operations()[name], given), given)


def _pages(asking: Ask, name: str, found: str, **args: Any) -> Iterator[dict[str, Any]]:
    page: int | None = 1
    while page is not None:
        answer = asking(name, limit=PAGE, page=page, **args)
        yield from answer[found]
        page = answer["next"]


def _chats(asking: Ask) -> list[dict[str, Any]]:
    """All chats but temporary ones, each once: their order changes meanwhile."""
    both = [each for archived in (False, True) for each in _pages(asking, "chats_list", "chats", archived=archived)]
    found = {each["name"]: each for each in both if not each["temporary"]}
    return sorted(found.values(), key=lambda each: str(each["name"]))


def _topics(asking: Ask) -> Iterator[dict[str, Any]]:
    before: dict[str, int] = {}
    while topics := asking("topics_list", limit=PAGE, **before)["topics"]:
        yield from topics
        if len(topics) < PAGE:
            return
        before = {"before": topics[-1]["last_rowid"]}


def _parts(asking: Ask, chat: str, form: str) -> Iterator[str]:
    after: int | None = 0
    while after is not None:
        part = asking("chats_export", chat=chat, format=form, after=after)
        yield part["text"]
        after = part["next"]


def _file_name(name: str, taken: set[str]) -> str:
    """A chat's name as a file's: it may be too long for one, and FAT may take two names for the same."""
    raw, small = name.encode(), name.casefold()
    if len(raw) <= MAX_NAME_BYTES and small not in taken:
        taken.add(small)
        return name
    return f"{raw[: MAX_NAME_BYTES - 20].decode(errors='ignore')}~{hashlib.sha256(raw).hexdigest()[:16]}"


def _kept() -> list[Records]:
    return [each for noun in nouns() for each in noun.records if f"{each.word}_list" in operations()]


def _line(records: Records, thing: dict[str, Any]) -> str:
    text, more = map(_text, records.in_a_line(thing))
    return f"- {text} *({more})*" if more else f"- {text}"


def _record(kind: "Kind[Any]", fields: dict[str, Any]) -> str:
    return f"- {': '.join(filter(None, map(_text, kind.said(fields))))}"


def _topic(topic: dict[str, Any]) -> str:
    span = " to ".join(dict.fromkeys((topic["first_at"][:10], topic["last_at"][:10])))
    return f"- {span}, {_text(topic['chat'].partition(':')[2])}: {_text(topic['summary'])}"


def _summary(summary: dict[str, Any]) -> str:
    place = f"{_text(summary['chat'].partition(':')[2])}, #{summary['first_seq']} to #{summary['last_seq']}"
    return f"## {place} ({summary['state']})\n\n{escaped(summary['text'])}\n"


def _text(text: str) -> str:
    return escaped(one_line(text))
