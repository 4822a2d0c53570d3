"""The slash command ``/forget``, in words for a chat: shows what would go, and forgets it when that is confirmed.

What it shows, it shows in words. Such an answer is stored in the chat itself, and goes with what is forgotten next.
"""

from collections.abc import Sequence

import attrs

from klaw.actor.clock import Clock
from klaw.domain.forget import Thing
from klaw.domain.names import ChatId, name_of, user_of
from klaw.memory.forget.finding import NothingToForget, Wanted
from klaw.memory.forget.forget import Forgetter, Proof

CONFIRM_S = 600.0
"""What was shown can be confirmed for so long."""
MAX_NEWEST = 50
DEFAULT_NEWEST = 2
"""A question with its answer."""
SHOWN = 40
MAX_WAITING = 1_000
"""Chats whose question is remembered; the oldest gives way."""

YES = frozenset({"yes", "да"})
NO = frozenset({"no", "нет"})
_LAST = frozenset({"last", "последнее", "последние"})
_WITH_FACTS = ("with facts", "с фактами")

USAGE = f"""Say what is to be forgotten; nothing goes before you have said /forget yes:
  /forget last        the last two messages of this chat; /forget last 5 the last five (at most {MAX_NEWEST})
  /forget #12         a message of this chat; /forget garden#12 one of another chat of yours
  /forget topic:7     a topic with all its messages; /topics lists them
  /forget fact:ID     a fact with its history; /memory lists them
  /forget person:NAME somebody you spoke of, with the facts that name them; what was said stays
With a message go the answer, the tool calls and all else that was made of it. With “with facts” behind it also what was
kept on purpose: facts, people known by nothing else, core memory, tasks and files."""


@attrs.frozen
class _Waiting:
    """What was shown and can be confirmed."""

    wanted: Wanted
    with_facts: bool
    until: float


class ForgetAnswers:
    """Asks and forgets. What waits for an answer is lost with the process, and then has to be asked again.

    Args:
        forgetter: does it.
        clock: for how long an answer is waited for.
    """

    def __init__(self, forgetter: Forgetter, clock: Clock) -> None:
        self._forgetter = forgetter
        self._clock = clock
        self._waiting: dict[ChatId, _Waiting] = {}

    async def tell(self, chat: ChatId, rest: str) -> str:
        """Carry out what stands behind the command. Raises StorageError, ActorStopped."""
        said = " ".join(rest.split())
        waiting = self._waiting.pop(chat, None)
        if said.casefold() in YES:
            if waiting is None or waiting.until < self._clock.now():
                return "There is nothing to confirm: say first what is to be forgotten."
            return await self._forget(waiting)
        if said.casefold() in NO:
            return "Nothing was forgotten." if waiting is not None else "There was nothing to confirm."
        if not said:
            return USAGE
        return await self._show(chat, said)

    async def _show(self, chat: ChatId, said: str) -> str:
        what, with_facts = said, False
        for ending in _WITH_FACTS:
            if what.casefold().endswith(f" {ending}"):
                what, with_facts = what[: -len(ending)].strip(), True
        try:
            wanted = await self._find(chat, what)
            before = await self._forgetter.preview(wanted, with_facts=with_facts)
        except NothingToForget as error:
            return f"Nothing can be forgotten: {error}.\n{USAGE}"
        while len(self._waiting) >= MAX_WAITING:
            del self._waiting[next(iter(self._waiting))]
        self._waiting[chat] = _Waiting(wanted, with_facts, self._clock.now() + CONFIRM_S)
        things = before.things
        lines = ["This would be forgotten, for good:", *_shown([each for each in things if each.goes])]
        lines += _kept("Kept; “with facts” behind it takes them too:", [each for each in things if _is_spared(each)])
        lines += _kept("Kept:", [each for each in things if not each.goes and each.remedy])
        if before.named is not None and before.named.messages:
            lines.append(
                f"Kept: messages that name them, {len(before.named.messages)}; on the server,"
                " klaw forget --with-messages takes them too."
            )
        lines.append("/forget yes forgets it (within 10 minutes), /forget no leaves it.")
        return "\n".join(lines)

    async def _find(self, chat: ChatId, what: str) -> Wanted:
        word, _, number = what.partition(" ")
        if word.casefold() in _LAST:
            if number and (not number.isdecimal() or len(number) > 4 or not 1 <= int(number) <= MAX_NEWEST):
                raise NothingToForget(f"after last stands a number from 1 to {MAX_NEWEST}")
            return await self._forgetter.newest(chat, int(number or DEFAULT_NEWEST))
        if what.removeprefix("#").isdecimal():
            what = f"{name_of(chat)}#{what.removeprefix('#')}"
        return await self._forgetter.find(what, user_of(chat))

    async def _forget(self, waiting: _Waiting) -> str:
        try:
            proof = await self._forgetter.forget(waiting.wanted, with_facts=waiting.with_facts)
        except NothingToForget as error:
            return f"Nothing was forgotten: {error}."
        lines = ["Forgotten.", *_left(proof)]
        return "\n".join([*lines, "What your devices show and what a provider received is beyond me."])


def _left(proof: Proof) -> list[str]:
    """What still says it, of the user's own; what others have makes no difference to it."""
    after = proof.after
    spared = [each for each in proof.before.things if not each.goes]
    lines = []
    kept = [f"{name} {count}" for name, count in after.kept.items() if count]
    if kept:
        lines.append(f"STILL said by what you keep: {', '.join(kept)}.")
    again = [f"{name_of(each.chat)}#{each.seq}" for each in proof.before.again]
    if again:
        lines += _listed("STILL said in", again)
    if proof.before.named is not None:
        still = ", ".join(f"{name} {count}" for name, count in proof.still_named.items())
        lines.append(f"STILL named in: {still}." if still else "No row names them any more.")
    elif not proof.before.scope.texts or not after.pieces:
        lines.append("The text is too short, or too common, to be looked for elsewhere.")
    elif not lines and not spared:
        lines.append("Nothing else of yours says it any more.")
    return [*lines, *_kept("STILL there, made of it:", spared)[:1], *(f"  {each.kind} {each.name}" for each in spared)]


def _is_spared(thing: Thing) -> bool:
    return not thing.goes and not thing.remedy


def _shown(things: Sequence[Thing]) -> list[str]:
    """Each thing in words."""
    lines = [f"  {described(each)}" for each in things[:SHOWN]]
    return [*lines, f"  … and {len(things) - SHOWN} more"] if len(things) > SHOWN else lines


def _kept(head: str, things: Sequence[Thing]) -> list[str]:
    return [head, *_shown(things)] if things else []


def described(thing: Thing) -> str:
    """A thing in words: what it is, where it is found, how it begins, and what to do about one that stays."""
    kind = "" if thing.kind == "message" else f"{thing.kind} "
    text = f": “{thing.text}”" if thing.text else ""
    return f"{kind}{thing.name}{text}{f' ({thing.remedy})' if thing.remedy else ''}"


def _listed(name: str, found: Sequence[str]) -> list[str]:
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return [f"  {name}: {', '.join(found[:SHOWN])}{more}"] if found else []
