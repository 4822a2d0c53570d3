"""What somebody means who says what is to be forgotten."""

import attrs

from klaw.domain.fact import FactId
from klaw.domain.message import Role
from klaw.domain.names import ChatId, InvalidName, UserId, chat_id, user_of
from klaw.domain.person import PersonId, normal_name
from klaw.domain.topic import TopicId
from klaw.errors import KlawError
from klaw.store.readers import Readers
from klaw.store.sql import facts, messages, naming, people, topics, whereabouts
from klaw.store.sql.forget_scope import Extra
from klaw.store.sql.naming import Named
from klaw.store.sql.whereabouts import Target


class NothingToForget(KlawError):
    """What was named is not there, or cannot be forgotten. The text says why."""


@attrs.frozen(kw_only=True)
class Wanted:
    """What is to be forgotten, by its numbers."""

    user: UserId
    rowids: tuple[int, ...] = ()
    facts: tuple[FactId, ...] = ()
    extra: Extra = attrs.field(factory=Extra)
    named: Named | None = None
    """Of a person: what names it."""


async def find(readers: Readers, text: str, user: UserId, *, with_messages: bool = False) -> Wanted:
    """What somebody means: ``topic:12``, ``fact:ID``, ``person:ID`` or ``person:NAME``, a message's id, or its chat
    and number (``main#12``); a name alone means a person when there is no such message.

    Args:
        text: what was said.
        user: whose.
        with_messages: of a person, also all messages that name it.

    Raises:
        NothingToForget: there is no such thing of this user's, or it is Klaw's own line.
    """
    kind, colon, rest = text.partition(":")
    if colon and kind == "topic":
        return await _topic(readers, rest, user)
    if colon and kind == "fact":
        history = await readers.run(facts.history, user, FactId(rest))
        if not history:
            raise NothingToForget("there is no such fact")
        return Wanted(user=user, facts=(FactId(rest),))
    if colon and kind == "person":
        return await _person(readers, rest, user, with_messages=with_messages)
    found = await readers.run(whereabouts.find, _message_target(text, user))
    if not found and "#" not in text and await _who(readers, text, user):
        return await _person(readers, text, user, with_messages=with_messages)
    if len(found) != 1:
        raise NothingToForget("there is no such message")
    if found[0].role is Role.SYSTEM:
        raise NothingToForget("this is forgotten already, or a line of Klaw's own: there is nothing of yours in it")
    return Wanted(user=user, rowids=(found[0].rowid,))


async def newest(readers: Readers, chat: ChatId, count: int) -> Wanted:
    """The newest messages of a chat that were said in it. Raises NothingToForget."""
    session = await readers.run(messages.session, chat)
    start = session.segment_start if session is not None else 1
    found = await readers.run(messages.newest_of_segment, chat, start, count)
    if not found:
        raise NothingToForget("there are no messages in this segment")
    return Wanted(user=user_of(chat), rowids=tuple(message.rowid for message in found))


async def _topic(readers: Readers, number: str, user: UserId) -> Wanted:
    topic = TopicId(int(number)) if number.isdecimal() and len(number) < 19 else TopicId(0)
    rowids = await readers.run(topics.members, user, topic)
    if not rowids:
        raise NothingToForget("there is no such topic")
    return Wanted(user=user, rowids=tuple(rowids))


async def _who(readers: Readers, text: str, user: UserId) -> list[PersonId]:
    """The people of this id or this name, and the person who each of them turned out to be."""
    past = await readers.run(people.history, user, PersonId(text))
    named = await readers.run(people.by_names, user, [text]) if normal_name(text) else []
    ids = [PersonId(text)] if past else [each.id for each in named]
    found = [(await readers.run(people.resolve, user, each), each) for each in ids]
    return [now.id if now is not None else each for now, each in found]


async def _person(readers: Readers, text: str, user: UserId, *, with_messages: bool) -> Wanted:
    who = await _who(readers, text, user)
    if len(who) > 1:
        raise NothingToForget(f"several people have this name: {', '.join(f'person:{each}' for each in who)}")
    named = await readers.run(naming.look, user, who[0]) if who else None
    if named is None:
        raise NothingToForget("there is no such person")
    if not named.names:
        raise NothingToForget("this person is forgotten already")
    extra = Extra(people=named.people)
    if with_messages:
        extra = attrs.evolve(extra, topics=named.topics, summaries=named.summaries, turns=named.turns, runs=named.runs)
        others = {kind: number for kind, number in named.others.items() if kind not in ("receipts", "runs")}
        named = attrs.evolve(named, others=others)
    rowids = named.messages if with_messages else ()
    return Wanted(user=user, rowids=rowids, facts=tuple(named.facts), extra=extra, named=named)


def _message_target(text: str, user: UserId) -> Target:
    named, mark, number = text.rpartition("#")
    if not mark:
        return Target(id=text, user=user)
    if not number.isdecimal() or len(number) > 18:
        raise NothingToForget("after # stands the number of a message: 1, 2, 3 …")
    try:
        chat = chat_id(user, named.removeprefix(f"{user}:"))
    except InvalidName as error:
        raise NothingToForget(f"the chat: {error}") from None
    return Target(seq=int(number), chat=chat)
