"""Chats: listing, titles, archive, export, deletion. The answers hold what was said, so they never go into a log."""

import html
import re
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict, cast

import attrs
from attrs.filters import include

from klaw.convert import Bounds, Check
from klaw.domain.attachment import TRANSCRIBED, files_of
from klaw.domain.events import ChatChanged
from klaw.domain.message import ECHO, MAX_TITLE, SHOWN, Message, MessageKind, Role, chat_title
from klaw.domain.names import name_of
from klaw.domain.summary import Summary
from klaw.domain.text import one_line, plural
from klaw.operations import forget, stored
from klaw.operations import operation as op
from klaw.operations.handler import Caller, DatabaseParts, Parts
from klaw.operations.lines import Line, Lines, Table, minute

if TYPE_CHECKING:
    from klaw.operations.answers import ForgetAnswer, ListedChat
    from klaw.store.kinds.chats import StoredChat

NOUN = op.Noun("chats", "list chats, give them titles, archive, export and delete them")

IN_CHATS = 20
MOST_TOLD = 200
"""Things that go with a chat, as they are listed."""
PART_MESSAGES = 500
PART_CHARS = 500_000
"""Limit of what was said in a part, which has at least one message."""


@attrs.frozen(kw_only=True)
class ChatsList(op.PagedArguments):
    archived: bool = op.argument("those that are archived, instead of the others", default=False)
    chat: op.ChatName | None = op.argument("only this one, whether it is archived or not", metavar="NAME", hidden=True)


@attrs.frozen(kw_only=True)
class OfChat(op.OfUser):
    chat: op.ChatName = op.required("the chat's name")


@attrs.frozen(kw_only=True)
class ChatsRename(OfChat):
    title: Annotated[str, Check(chat_title, Bounds(0, MAX_TITLE))] | None = op.argument(
        f"its title, at most {MAX_TITLE} characters; '' takes it away", positional=True, words=True
    )


@attrs.frozen(kw_only=True)
class ChatsExport(OfChat):
    format: Literal["markdown", "json"] = op.argument("markdown or json", default="markdown", hidden=True)
    after: Annotated[int, Bounds(0)] = op.argument(
        "the part of the document after this message", default=0, metavar="SEQ", hidden=True
    )
    variants: bool = op.argument("also messages that another variant has replaced", default=False)


@attrs.frozen(kw_only=True)
class ChatsPin(OfChat):
    off: bool = op.argument("take it back", default=False)


@attrs.frozen(kw_only=True)
class ChatsDelete(OfChat):
    with_facts: bool = op.argument("also facts, people, files and tasks that came from it", default=False)
    dry_run: bool = op.argument("only list what would go and what holds it", default=True)


class ChatPage(TypedDict):
    user: str
    archived: bool
    count: int
    next: int | None
    chats: "list[ListedChat]"


class OneChat(TypedDict):
    chat: "StoredChat"


class TemporaryState(TypedDict):
    chat: str
    temporary: bool


class PartOfChat(TypedDict):
    chat: str
    format: str
    messages: int
    text: str
    next: int | None


class SummaryList(TypedDict):
    summaries: list[Summary]


def _table(answer: dict[str, Any]) -> Lines:
    if not answer["chats"]:
        return ["no archived chats" if answer["archived"] else "no chats: `klaw chat` begins one"]
    rows = [["chat", "title", "messages", "last message"]]
    rows += [
        [each["name"], _marked(each), str(each["messages"]), minute(each["updated_at"])] for each in answer["chats"]
    ]
    return [Table(rows, right=frozenset({2})), *op.more(answer)]


def _in_chat(answer: dict[str, Any]) -> Lines:
    if not answer["chats"]:
        return ["Your chats are archived; the next message of each brings it back."]
    rows = [
        [_called(each), plural(each["messages"], "message"), minute(each["updated_at"])] for each in answer["chats"]
    ]
    return ["Your chats, the last used first:", Table(rows), *op.also(answer, "chats", "klaw chats list")]


def _renamed(answer: dict[str, Any]) -> Lines:
    chat = answer["chat"]
    return [
        f"chat {chat['name']} is now called “{chat['title']}”" if chat["title"] else f"chat {chat['name']} has no title"
    ]


def _put_away(answer: dict[str, Any]) -> Lines:
    chat = answer["chat"]
    if chat["archived"]:
        return [f"chat {_called(chat)} is archived; its next message brings it back"]
    return [f"chat {_called(chat)} is in the list"]


def _called(chat: dict[str, Any]) -> str:
    return f"{chat['name']} “{chat['title']}”" if chat["title"] else str(chat["name"])


def _marked(chat: dict[str, Any]) -> str:
    marks = [word for word in ("pinned", "temporary") if chat[word]]
    return f"{chat['title']} ({', '.join(marks)})".strip() if marks else str(chat["title"])


def _pinned(answer: dict[str, Any]) -> Lines:
    chat = answer["chat"]
    return [f"chat {_called(chat)} is {'pinned' if chat['pinned'] else 'no longer pinned'}"]


def _kept(answer: dict[str, Any]) -> Lines:
    return [f"chat {_called(answer['chat'])} is kept, like any other chat"]


def _begun(answer: dict[str, Any]) -> Lines:
    return [f"chat {answer['chat']} is temporary: it is deleted a day after its last message"]


def _summaries(answer: dict[str, Any]) -> Lines:
    if not answer["summaries"]:
        return ["no summaries of this chat"]
    lines: list[Line] = []
    for each in answer["summaries"]:
        place = f"#{each['first_seq']} to #{each['last_seq']}"
        lines += [f"{each['number']}. {place}, {minute(each['created_at'])}, {each['state']}:", each["text"], ""]
    return lines


_LIST = op.Slash(
    word="/chats",
    help="list your chats",
    given={"limit": IN_CHATS},
    show=_in_chat,
    metadata=lambda answer: {SHOWN: True} if any(each["title"] for each in answer["chats"]) else {},
)
_RENAME = op.Slash(word="/rename", help="give this chat a title: /rename Garden plans", rest="title", of_chat="chat")
_ARCHIVE = op.Slash(word="/archive", help="take this chat out of the list until its next message", of_chat="chat")


@NOUN.operation("chats_list", ChatsList, cli="list", show=_table, offline=True, slash=_LIST)
async def list_chats(asked: ChatsList, caller: Caller, parts: DatabaseParts) -> ChatPage:
    """List the chats: pinned ones, then the others, the last used first."""
    chats, only = stored.chats, op.chat_of(asked.chat, caller.user)
    if only is None:
        count = await parts.readers.run(chats.count, caller.user, archived=asked.archived)
        found = await parts.readers.run(chats.listed, caller.user, asked.limit, asked.offset, archived=asked.archived)
    else:
        one = await parts.readers.run(chats.get, caller.user, only)
        found = [one] if one is not None else []
        count = len(found)
    said = await parts.readers.run(chats.count_said, caller.user, [each.chat for each in found])
    return {
        "user": caller.user,
        "archived": asked.archived,
        "count": count,
        "next": asked.following(count),
        "chats": [cast("Any", {**attrs.asdict(each), "messages": said[each.chat]}) for each in found],
    }


@NOUN.operation("chats_rename", ChatsRename, cli="rename", show=_renamed, changes=True, slash=_RENAME)
async def rename(asked: ChatsRename, caller: Caller, parts: Parts) -> OneChat:
    """Give a chat a title, which may be any text on one line; its name stays."""
    if asked.title is None:
        raise op.OperationError("bad_args", "say the title too, as in /rename Garden plans", field="title")
    chat = op.chat_of(asked.chat, caller.user)
    return _changed(await parts.writer.run(stored.chats.rename, caller.user, chat, asked.title, parts.now()), parts)


def _changed(chat: "StoredChat", parts: Parts) -> OneChat:
    """The answer with a changed chat, of which those who watch it are told."""
    parts.core.events.emit(ChatChanged(chat=chat.chat, title=chat.title))
    return {"chat": chat}


@NOUN.operation("chats_pin", ChatsPin, cli="pin", show=_pinned, changes=True)
async def pin(asked: ChatsPin, caller: Caller, parts: Parts) -> OneChat:
    """Keep a chat at the top of the list, or with --off no longer."""
    chat = op.chat_of(asked.chat, caller.user)
    done = await parts.writer.run(stored.chats.pin, caller.user, chat, parts.now(), pinned=not asked.off)
    return _changed(done, parts)


@NOUN.operation("chats_temporary", OfChat, cli="temporary", show=_begun, changes=True)
async def begin_temporary(asked: OfChat, caller: Caller, parts: Parts) -> TemporaryState:
    """Make a new chat a temporary one, before its first message.

    Nothing is made of it: no topics, facts or people. Only it can search itself, no export has it, and it is deleted
    permanently a day after its last message.
    """
    chat = op.chat_of(asked.chat, caller.user)
    if not await parts.writer.run(stored.chats.begin_temporary, caller.user, chat, parts.now()):
        text = "has messages already: only a new chat can be temporary. Take another name"
        raise op.OperationError("bad_args", text, field="chat")
    return {"chat": name_of(chat), "temporary": True}


@NOUN.operation("chats_keep", OfChat, cli="keep", show=_kept, changes=True)
async def keep(asked: OfChat, caller: Caller, parts: Parts) -> OneChat:
    """Keep a temporary chat: from now on it is like any other chat."""
    chat = op.chat_of(asked.chat, caller.user)
    done = await parts.writer.run(stored.chats.keep, caller.user, chat, parts.now())
    parts.memory.archivist.nudge()
    parts.memory.titler.nudge()
    return _changed(done, parts)


@NOUN.operation("chats_archive", OfChat, cli="archive", show=_put_away, changes=True, slash=_ARCHIVE)
async def archive(asked: OfChat, caller: Caller, parts: Parts) -> OneChat:
    """Take a chat out of the list until its next message; nothing of it is forgotten."""
    return await _archive(asked, caller, parts, archived=True)


@NOUN.operation("chats_restore", OfChat, cli="restore", show=_put_away, changes=True)
async def restore(asked: OfChat, caller: Caller, parts: Parts) -> OneChat:
    """Bring an archived chat back into the list."""
    return await _archive(asked, caller, parts, archived=False)


async def _archive(asked: OfChat, caller: Caller, parts: Parts, *, archived: bool) -> OneChat:
    chat = op.chat_of(asked.chat, caller.user)
    done = await parts.writer.run(stored.chats.archive, caller.user, chat, parts.now(), archived=archived)
    return _changed(done, parts)


@NOUN.operation("chats_export", ChatsExport, cli="export", offline=True, document=True)
async def export(asked: ChatsExport, caller: Caller, parts: DatabaseParts) -> PartOfChat:
    """Write a chat with all its messages as Markdown, or with --json as JSON."""
    chat = op.chat_of(asked.chat, caller.user)
    about = await parts.readers.run(stored.chats.get, caller.user, chat)
    if about is None:
        raise op.OperationError("unknown_chat", "the chat does not exist", field="chat")
    if about.temporary:
        text = "is temporary and cannot be exported. Keep it first: klaw chats keep NAME"
        raise op.OperationError("temporary_chat", text, field="chat")
    found = await parts.readers.run(
        stored.messages.kept_after, chat, asked.after, PART_MESSAGES + 1, variants=asked.variants
    )
    said = op.fitting(found[:PART_MESSAGES], lambda each: len(each.content), PART_CHARS)
    last = len(said) == len(found)
    replaced = await parts.readers.run(stored.branches.replaced, chat) if asked.variants else frozenset[int]()
    text = _document_part(asked, attrs.asdict(about), said, replaced, last=last)
    return {
        "chat": chat,
        "format": asked.format,
        "messages": len(said),
        "text": text,
        "next": None if last else said[-1].seq,
    }


# -- a chat as a document: Markdown for people, JSON for programs. What anybody said stands in a block of its own (a
# quotation, or fenced code), so that none of it can look like a line of the document. Calls of tools and their results
# are folded.

_AUTHORS = {Role.USER: "User", Role.ASSISTANT: "Assistant", Role.TOOL: "Tool", Role.SYSTEM: "Klaw"}
_LINE_END = re.compile(r"\r\n|\r|\n")
_MARKUP = re.compile(r"([\\`*_\[\]<>&#])")


def _document_part(
    asked: ChatsExport, chat: Mapping[str, Any], said: Iterable[Message], replaced: Collection[int], *, last: bool
) -> str:
    """The next messages of a chat, if there are any; ``last``: there are no others behind them. ``replaced``: numbers
    of those that another variant has replaced."""
    first = asked.after == 0
    if asked.format == "markdown":
        head = f"# {escaped(chat['title'] or chat['name'])}\n\nChat {escaped(chat['name'])}; times are UTC.\n"
        return (head if first else "") + "".join(_markdown(each, replaced=each.seq in replaced) for each in said)
    from klaw.store.rows import dumps

    about = dumps({name: chat[name] for name in ("chat", "name", "title")})
    lines = ",\n".join(dumps({**_json(each), **({"replaced": True} if each.seq in replaced else {})}) for each in said)
    comma = ",\n" if lines else ""
    return (f'{about[:-1]},"messages":[\n' if first else comma) + lines + ("\n]}\n" if last else "")


def _json(message: Message) -> dict[str, Any]:
    told = include("seq", "id", "role", "type", "content", "created_at", "segment")
    metadata = {name: value for name, value in message.metadata.items() if name != ECHO}
    return {**attrs.asdict(message, recurse=False, filter=told), "metadata": metadata}


def escaped(text: str) -> str:
    """A text in which nothing is Markdown."""
    return _MARKUP.sub(r"\\\1", text)


def _markdown(message: Message, *, replaced: bool) -> str:
    at = message.created_at[:16].replace("T", " ")
    if message.type is MessageKind.SESSION_BREAK:
        return f"\n---\n\n*A fresh start · {at}*\n"
    about = f"{at} · #{message.seq}{' · replaced' if replaced else ''}"
    if message.type is MessageKind.TOOL_RESULT:
        failed = " failed" if message.metadata.get("error") else ""
        return _folded(f"Result of {message.metadata.get('name', 'a tool')}{failed} · {about}", message.content)
    task = message.metadata.get("task")
    author = _AUTHORS[message.role] + (f", task {task}" if task else "")
    files = ", ".join(escaped(each.name) for each in files_of(message.metadata))
    parts = [_quoted(message.content)] if message.content else []
    heard = " (transcribed)" if message.metadata.get(TRANSCRIBED) else ""
    parts += [f"Files: {files}{heard}"] if files else []
    calls = message.metadata.get("calls", ()) if message.type is MessageKind.TOOL_CALL else ()
    folded = [_folded(f"Call of {call.get('name')} · {about}", str(call.get("arguments"))) for call in calls]
    said = "\n\n".join([f"**{author}** · {about}", *parts])
    return (f"\n{said}\n" if parts else "") + "".join(folded)


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in _LINE_END.split(text))


def _folded(head: str, text: str) -> str:
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    summary = html.escape(one_line(head), quote=False)
    return f"\n<details><summary>{summary}</summary>\n\n{fence}\n{text}\n{fence}\n\n</details>\n"


# -- summaries, and deletion -------------------------------------------------------------------------------------------


@NOUN.operation("chats_summaries", OfChat, cli="summaries", show=_summaries, offline=True)
async def summaries(asked: OfChat, caller: Caller, parts: DatabaseParts) -> SummaryList:
    """Show the summaries of a chat: what stands in the place of messages that are too old for a request."""
    chat = op.chat_of(asked.chat, caller.user)
    return {"summaries": await parts.readers.run(stored.summaries.of_chat, chat)}


@NOUN.operation(
    "chats_delete",
    ChatsDelete,
    cli="delete",
    show=forget.lines,
    changes=True,
    deadline_s=3600.0,  # some minutes for 50,000 messages
    confirm="This cannot be undone. Delete it?",
)
async def delete(asked: ChatsDelete, caller: Caller, parts: Parts) -> "ForgetAnswer":
    """Forget a chat: its messages, what was made of them, its title; and show what still holds it."""
    name, forgetter = name_of(op.chat_of(asked.chat, caller.user)), parts.memory.forgetter
    wanted = await forgetter.find(f"chat:{name}", caller.user)
    if not asked.dry_run and await parts.chats.stop(caller.user, name):
        wanted = await forgetter.find(f"chat:{name}", caller.user)  # with what the turn has written
    with_facts, dry_run = asked.with_facts, asked.dry_run
    return without_messages(await forget.carried_out(wanted, caller, parts, with_facts=with_facts, dry_run=dry_run))


def without_messages(answer: "ForgetAnswer", of_chats: int | None = None) -> "ForgetAnswer":
    """The messages of a chat, or ``of_chats`` of several, are too many to be told one by one."""
    things = [each for each in answer["things"] if each.kind not in forget.MESSAGES]
    count = len(cast("list[Any]", answer["messages"]))
    if of_chats is None:
        things = [
            attrs.evolve(each, remedy=plural(count, "message")) if each.kind == "chat" else each for each in things
        ]
    return {**answer, "messages": count if of_chats is None else of_chats, "things": things[:MOST_TOLD]}
