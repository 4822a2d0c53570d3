"""Forgetting a message, a chat, a topic, a fact, a task or a person, with a proof.

The answers hold beginnings of what goes, and of a person its names and the facts that name it, so they never go into a
log. What a chat is shown is stored in the chat itself, and goes with what is forgotten next.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from klaw.domain import message
from klaw.domain.names import ChatId, name_of, user_of
from klaw.operations.handler import Caller, Parts
from klaw.operations.lines import Lines
from klaw.operations.operation import Name, Noun, OfUser, Query, Scope, Slash, argument, required

if TYPE_CHECKING:
    from klaw.memory.forget.forget import Forgetter, Preview, Proof
    from klaw.operations.answers import ForgetAnswer, NamedMessage, StillHeld
    from klaw.store.forget.proof import HoldingFile
    from klaw.store.forget.reach import ForgetTarget

NOUN = Noun(
    "forget",
    "remove a message, a chat, a topic, a fact, a task or a person from everything, with a proof (docs/memory.md)",
)

CONFIRM_S = 600.0
"""What a chat was shown can be confirmed for so long."""
MAX_NEWEST = 50
DEFAULT_NEWEST = 2
"""A question with its answer."""
SHOWN = 40

_YES, _NO = frozenset({"yes", "да"}), frozenset({"no", "нет"})
_LAST = frozenset({"last", "последнее", "последние"})
_CHAT = frozenset({"chat", "чат"})
_WITH_FACTS = ("with facts", "с фактами")

_USAGE = f"""Say what is to be forgotten; nothing goes before you have said /forget yes:
  /forget last        the last two messages of this chat; /forget last 5 the last five (at most {MAX_NEWEST})
  /forget #12         a message of this chat; /forget garden#12 one of another chat of yours
  /forget chat        this chat with all its messages and its title; /forget chat:garden another one
  /forget topic:7     a topic with all its messages; /topics lists them
  /forget fact:ID     a fact with its history; /memory lists them
  /forget task:NAME   a task, also a removed one, with its runs and what they said
  /forget person:NAME somebody you spoke of, with the facts that name them; what was said stays
With a message go the answer, the tool calls and all else that was made of it. With “with facts” behind it also what was
kept on purpose: facts, people known by nothing else, core memory, tasks and files.""".split("\n")


@attrs.frozen(kw_only=True)
class Forget(OfUser):
    what: Name = required(
        "a message's id or main#12, chat:NAME, topic:ID, fact:ID, task:NAME, person:ID or person:NAME",
        metavar="WHAT",
        id_of="message",
    )
    with_facts: bool = argument("also facts, people, files and tasks that came from it", default=False)
    with_messages: bool = argument("of a person: also the messages that name them", default=False)
    dry_run: bool = argument("only list what would go and what holds it", default=True)


@attrs.frozen(kw_only=True)
class ForgetInChat:
    what: Query | None = argument("what, or yes or no to what was shown", hidden=True)


# -- how it is shown --------------------------------------------------------------------------------------------------


def lines(answer: dict[str, Any]) -> Lines:
    """What goes, or went, and what holds it."""
    done = answer["forgotten"]
    found = ["forgotten:" if done else "would be forgotten:"]
    found += [_described(each, words=not done) for each in answer["things"] if each["goes"]]
    if answer["rows"]:
        found.append(f"rows that quote the text: {_counted(answer['rows'])}")
    kept = [_described(each) for each in answer["things"] if not each["goes"]]
    found += _headed("kept; --with-facts forgets what has nothing else beside it:", kept)
    if answer["named"] is not None:
        found += _naming(answer)
    if answer["again"]:
        found.append(f"said again in: {_places(answer['again'])}; forget those too if they are to go")
    if not answer["searched"]:
        found.append("the text is too short, or too common, to be searched for elsewhere")
    found += _headed("was held by:" if done else "held by:", [_file(each) for each in answer["held"]])
    if done:
        still = [f"{_file(each)}: {each['remedy']}" for each in answer["still_held"]]
        found += _headed("STILL held by:", still)
        if not still and answer["searched"]:
            found.append("a search of all files finds its words nowhere")
    found += _headed("kept, by name only:", _some([_name_left(each) for each in answer["names"]]))
    aside = [f"  {each['path']}: {each['remedy']}" for each in answer["aside"]]
    return [*found, *_headed("kept aside, and not searched word by word: it may be there in another form", aside)]


def _name_left(left: Mapping[str, str]) -> str:
    return f"  {left['kind']} {left['name']}: in {left['folder']}/, in lines of the logs and in the database"


def _naming(answer: dict[str, Any]) -> list[str]:
    named = answer["named"]
    found = [f"looked for the names: {', '.join(named['names'])}"]
    found += [f"  fact {each['id']}: {each['text']}" for each in named["facts"]]
    if named["namesakes"]:
        found.append(f"others have one of these names too: {', '.join(named['namesakes'])}")
    if named["staying"]:
        more = named["messages"] - len(named["staying"])
        some = _places(named["staying"]) + (f" and {more} more" if more > 0 else "")
        found.append(f"kept: messages that name them: {some}; --with-messages forgets them too")
        for name in ("topics", "summaries"):
            if named[name]:
                found.append(f"  {name} that name them: {', '.join(map(str, named[name]))}")
    if answer["forgotten"]:
        still = answer["still_named"]
        found.append(f"STILL named in: {_counted(still)}" if still else "no row names them any more")
    elif named["others"]:
        found.append(f"kept: named also in: {_counted(named['others'])}")
    return found


def _in_chat(answer: dict[str, Any]) -> Lines:
    if "said" in answer:
        return list(answer["said"])
    return _forgotten(answer) if answer["forgotten"] else _asked(answer)


def _asked(answer: dict[str, Any]) -> list[str]:
    going = [_described(each) for each in answer["things"] if each["goes"]]
    kept = [each for each in answer["things"] if not each["goes"]]
    spared = [_described(each) for each in kept if not each["remedy"]]
    lines = ["This would be forgotten, for good:", *_some(going)]
    lines += _headed("Kept; “with facts” behind it takes them too:", _some(spared))
    lines += _headed("Kept:", _some([_described(each) for each in kept if each["remedy"]]))
    if answer["named"] is not None and answer["named"]["messages"]:
        lines.append(
            f"Kept: messages that name them, {answer['named']['messages']}; on the server, klaw forget --with-messages"
            " takes them too."
        )
    return [*lines, "/forget yes forgets it (within 10 minutes), /forget no leaves it."]


def _forgotten(answer: dict[str, Any]) -> list[str]:
    """What still says it, of the user's own; what others have makes no difference to it."""
    lines = []
    if answer["still_kept"]:
        lines.append(f"STILL said by what you keep: {_counted(answer['still_kept'])}.")
    if answer["again"]:
        said = [f"{name_of(each['chat'])}#{each['seq']}" for each in answer["again"]]
        lines.append(f"  STILL said in: {_joined(said)}")
    spared = [each for each in answer["things"] if not each["goes"]]
    if answer["named"] is not None:
        still = answer["still_named"]
        lines.append(f"STILL named in: {_counted(still)}." if still else "No row names them any more.")
    elif not answer["searched"]:
        lines.append("The text is too short, or too common, to be looked for elsewhere.")
    elif not lines and not spared:
        lines.append("Nothing else mentions it any more.")
    lines += _headed("STILL there, made of it:", [f"  {each['kind']} {each['name']}" for each in spared])
    names = [f"{each['kind']} {each['name']}" for each in answer["names"]]
    lines += [f"STILL there, as a name only: {_joined(names)}."] if names else []
    return ["Forgotten.", *lines, "What your devices show and what a provider received is beyond me."]


def _some(lines: Sequence[str]) -> list[str]:
    more = [f"  … and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
    return [*lines[:SHOWN], *more]


def _joined(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def _described(thing: dict[str, Any], *, words: bool = True) -> str:
    """What a thing is, where it is found, how it begins, and what to do about one that stays."""
    kind = "" if thing["kind"] == "message" else f"{thing['kind']} "
    text = f": “{thing['text']}”" if words and thing["text"] else ""
    return f"  {kind}{thing['name']}{text}{' (' + thing['remedy'] + ')' if thing['remedy'] else ''}"


def _headed(head: str, lines: Sequence[str]) -> list[str]:
    return [head, *lines] if lines else []


def _places(messages: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{each['chat']}#{each['seq']}" for each in messages)


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def _file(held: Mapping[str, Any]) -> str:
    return f"  {held['path']} ({held['kind']}, {held['count']})"


# -- as JSON ----------------------------------------------------------------------------------------------------------


MESSAGES = frozenset({"message", "answer", "tool call", "tool result"})


def preview(before: "Preview") -> "ForgetAnswer":
    from klaw.store.forget.proof import names_left

    reach, quotes, named = before.reach, before.reach.quotes, before.named
    return {
        "forgotten": False,
        "user": reach.user,
        "messages": _messages([each for each in reach.own if each.rowid not in reach.shown]),
        "facts": reach.facts,
        "kept_facts": reach.kept.get("fact", ()),
        "topics": reach.topics,
        "summaries": [f"{chat}#{number}" for chat, number in reach.gone["summary"]],
        "things": before.things,
        "names": names_left(reach),
        "people": reach.people,
        "kept_people": reach.kept.get("person", ()),
        "named": None
        if named is None
        else {
            "names": named.names,
            "namesakes": named.namesakes,
            "facts": [{"id": fact, "text": text} for fact, text in named.found["fact"].items()],
            "messages": len(named.messages),
            "staying": _messages(before.naming),
            "topics": named.topics,
            "summaries": [f"{chat}#{number}" for chat, number in named.found["summary"]],
            "others": named.others,
        },
        "rows": {name: len(rows) for name, rows in quotes.rows.items() if rows} | _positive(quotes.kept),
        "again": _messages(before.again),
        "searched": bool(quotes.finder),
        "held": _held(before.held),
        "aside": [{"path": each.path, "remedy": each.remedy} for each in before.aside],
    }


def proof(done: "Proof") -> "ForgetAnswer":
    return {
        **preview(done.before),
        "forgotten": True,
        "entry": done.entry,
        "lines": done.lines,
        "vacuumed": done.vacuumed,
        "still_held": _held(done.held),
        "still_named": done.still_named,
        "still_kept": _positive(done.after.kept),
    }


def _messages(found: Sequence[Any]) -> "list[NamedMessage]":
    return [{"chat": each.chat, "seq": each.seq, "id": each.id} for each in found]


def _held(found: "Sequence[HoldingFile]") -> "list[StillHeld]":
    return [{"path": each.path, "count": each.count, "kind": each.kind, "remedy": each.remedy} for each in found]


def _positive(counts: Mapping[str, int]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count}


# -- the operations ---------------------------------------------------------------------------------------------------


@NOUN.operation(
    "forget",
    Forget,
    cli="",
    show=lines,
    changes=True,
    deadline_s=600.0,
    confirm="This cannot be undone. Forget it?",
    mcp="forget",
)
async def forget(asked: Forget, caller: Caller, parts: Parts) -> "ForgetAnswer":
    """Remove a message, chat, topic, fact, task or person from logs, database and files; show what still holds it.

    It cannot be undone. Without dry_run=false nothing is removed and the answer lists what would go (goes: true): show
    that to the user, and ask again with dry_run=false only after they have agreed.
    """
    wanted = await parts.memory.forgetter.find(asked.what, caller.user, with_messages=asked.with_messages)
    return await carried_out(wanted, caller, parts, with_facts=asked.with_facts, dry_run=asked.dry_run)


async def carried_out(
    wanted: "ForgetTarget", caller: Caller, parts: Parts, *, with_facts: bool, dry_run: bool
) -> "ForgetAnswer":
    """Forget something, or with ``dry_run`` only show what would go."""
    forgetter = parts.memory.forgetter
    everywhere = caller.operator  # else the files would tell how often others said the same
    if dry_run:
        return preview(await forgetter.preview(wanted, with_facts=with_facts, everywhere=everywhere))
    done = await forgetter.forget(wanted, with_facts=with_facts, everywhere=everywhere)
    return {**proof(done), "everywhere": everywhere}


@NOUN.operation(
    "chat_forget",
    ForgetInChat,
    show=_in_chat,
    scope=Scope.CHAT,
    changes=True,
    slash=Slash(
        word="/forget",
        rest="what",
        help="forget messages, this chat, a topic, a fact, a task or a person for good: shows first what would go",
        metadata=lambda answer: {} if answer.get("confirmed") else {message.SHOWN: True},
    ),
)
async def forget_in_chat(asked: ForgetInChat, caller: Caller, parts: Parts) -> Mapping[str, Any]:
    """Show what would be forgotten, or forget what was shown."""
    from klaw.store.forget.finding import NothingToForget

    said = " ".join((asked.what or "").split())
    forgetter = parts.memory.forgetter
    waiting = forgetter.take_shown(caller.here, parts.clock.now())
    if said.casefold() in _YES:
        await caller.stop_turn("/forget")  # its answer could quote what is forgotten
        if waiting is None:
            return {"confirmed": True, "said": ["There is nothing to confirm: say first what is to be forgotten."]}
        try:
            wanted = await forgetter.again(waiting.wanted)
            done = await forgetter.forget(wanted, with_facts=waiting.with_facts)
            return {"confirmed": True, **proof(done)}
        except NothingToForget as error:
            return {"confirmed": True, "said": [f"Nothing was forgotten: {error}."]}
    if said.casefold() in _NO:
        return {"said": ["Nothing was forgotten." if waiting is not None else "There was nothing to confirm."]}
    if not said:
        return {"said": _USAGE}
    what, with_facts = said, False
    for ending in _WITH_FACTS:
        if what.casefold().endswith(f" {ending}"):
            what, with_facts = what[: -len(ending)].strip(), True
    try:
        wanted = await _find(forgetter, caller.here, what)
        before = await forgetter.preview(wanted, with_facts=with_facts)
    except NothingToForget as error:
        return {"said": [f"Nothing can be forgotten: {error}.", *_USAGE]}
    forgetter.note_shown(caller.here, wanted, with_facts=with_facts, until=parts.clock.now() + CONFIRM_S)
    return preview(before)


async def _find(forgetter: "Forgetter", chat: ChatId, what: str) -> "ForgetTarget":
    from klaw.store.forget.finding import NothingToForget, newest

    word, _, number = what.partition(" ")
    if word.casefold() in _LAST:
        if number and (not number.isdecimal() or len(number) > 4 or not 1 <= int(number) <= MAX_NEWEST):
            raise NothingToForget(f"after last stands a number from 1 to {MAX_NEWEST}")
        return await forgetter.readers.run(newest, chat, int(number or DEFAULT_NEWEST))
    if what.casefold() in _CHAT:
        what = f"chat:{name_of(chat)}"
    if what.removeprefix("#").isdecimal():
        what = f"{name_of(chat)}#{what.removeprefix('#')}"
    return await forgetter.find(what, user_of(chat))
