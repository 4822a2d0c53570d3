"""Messengers in which people talk with Klaw: accounts, and who may write there."""

import re
from typing import Annotated, Any, Literal, TypedDict

import attrs

from klaw.config.keys import ADDRESS
from klaw.convert import Bounds
from klaw.errors import ConfigError
from klaw.operations import operation as op
from klaw.operations.handler import Caller, Parts
from klaw.operations.lines import Line, Lines, Table

NOUN = op.Noun("channels", "talk with Klaw in Telegram and Matrix (docs/channels.md)")
TELEGRAM = "https://api.telegram.org"
Address = Annotated[str, Bounds(1, 300, ADDRESS["pattern"])]
Account = Annotated[str, Bounds(1, 16, "[a-z0-9][a-z0-9_-]*")]


@attrs.frozen(kw_only=True)
class OfMessenger(op.OfUser):
    type: Literal["telegram", "matrix"] = op.required("telegram or matrix")
    homeserver: Address | None = op.argument("of Matrix: the address of the homeserver", metavar="URL")
    api_url: Address | None = op.argument("of Telegram: the address of a Bot API server of your own", metavar="URL")
    name: Account | None = op.argument("what the account is called here (default: as the messenger)")


@attrs.frozen(kw_only=True)
class ChannelToAdd(OfMessenger):
    token: Annotated[str, Bounds(1, 4_000, r"[\x21-\x7e]+")] = attrs.field(
        repr=False, metadata={"argument": op.Argument(help="the token of the bot's account", hidden=True)}
    )


@attrs.frozen(kw_only=True)
class OneChannel:
    name: Account = op.required("the account's name: klaw channels list")


@attrs.frozen(kw_only=True)
class ChannelOfUser(op.OfUser):
    name: Account = op.required("the account's name: klaw channels list")


@attrs.frozen(kw_only=True)
class CodeToPair(op.OfUser):
    code: Annotated[str, Bounds(1, 64)] = op.required("the code that was told in the messenger")


@attrs.frozen(kw_only=True)
class ConversationToEnd(op.OfUser):
    id: op.Name = op.required("the conversation's id: klaw channels list")


class LinkedAnswer(TypedDict):
    id: str
    channel: str
    user: str
    title: str
    group: bool
    chat: str


class ChannelAnswer(TypedDict):
    """``problem``: why it does not work now. ``bot``: its name in the messenger, None until that has answered."""

    name: str
    type: str
    bot: str | None
    link: str | None
    problem: str | None


class WaitingCode(TypedDict):
    code: str
    channel: str
    title: str
    group: bool


class ChannelsAnswer(TypedDict):
    """``waiting``: who asks to be let in, for operators."""

    channels: list[ChannelAnswer]
    conversations: list[LinkedAnswer]
    waiting: list[WaitingCode]


class ChannelLink(TypedDict):
    """``url`` opens a conversation with the bot; ``picture`` is its QR code, an SVG as a data URL. Who says ``code``
    there until ``expires_at`` is connected with the user."""

    name: str
    bot: str
    url: str
    picture: str
    code: str
    user: str
    expires_at: str


class EndedConversations(TypedDict):
    ended: list[LinkedAnswer]


def _listed(answer: dict[str, Any]) -> Lines:
    lines: list[Line] = []
    for each in answer["channels"]:
        state = each["problem"] or (f"works as {each['bot']}" if each["bot"] else "is being connected")
        lines.append(f"{each['name']} ({each['type']}): {state}")
    if not lines:
        lines = ["There are no channels yet: klaw channels add telegram, or klaw channels add matrix."]
    rows = [
        [each["id"], each["channel"], each["user"], each["title"], each["chat"]] for each in answer["conversations"]
    ]
    if rows:
        lines += [Table([["ID", "CHANNEL", "USER", "WITH", "CHAT"], *rows])]
    lines += [
        f"{each['title'] or 'somebody'} waits in {each['channel']}: klaw channels pair {each['code']}"
        for each in answer["waiting"]
    ]
    return lines


def _tested(answer: dict[str, Any]) -> Lines:
    return [f"{answer['name']} works as {answer['bot']}."]


def _paired(answer: dict[str, Any]) -> Lines:
    return [f"{answer['title'] or answer['id']} in {answer['channel']} is user {answer['user']} from now on."]


def _ended(answer: dict[str, Any]) -> Lines:
    return [f"ended: {each['title'] or each['id']} in {each['channel']}" for each in answer["ended"]] or [
        "nothing ended"
    ]


@NOUN.operation("channels_list", op.OfUser, cli="list", show=_listed)
async def list_channels(asked: op.OfUser, caller: Caller, parts: Parts) -> ChannelsAnswer:
    """List the accounts, the conversations that are connected, and who waits with a code."""
    all_users, channels = caller.operator and asked.user is None, _channels(parts)
    links = [each.link for channel in channels.running.values() for each in channel.linked]
    waiting = channels.codes.waiting() if caller.operator else []
    return {
        "channels": [_told(parts, name) for name in parts.config.channels.accounts],
        "conversations": [_link(each) for each in links if all_users or each.user == caller.user],
        "waiting": [
            {
                "code": code,
                "channel": each.account,
                "title": each.conversation.title or each.sender.name,
                "group": each.conversation.group,
            }
            for code, each in waiting
        ],
    }


@NOUN.operation("channels_add", ChannelToAdd, scope=op.Scope.OPERATOR, changes=True, deadline_s=90)
async def add(asked: ChannelToAdd, caller: Caller, parts: Parts) -> ChannelLink:
    """Connect an account of a messenger; it is tried first. Its token goes into secrets.env."""
    from klaw.config import secrets

    name, url = asked.name or asked.type, asked.homeserver or asked.api_url
    if asked.type == "matrix" and asked.homeserver is None:
        text = "is missing: give the address of the homeserver, such as https://matrix.example.org"
        raise op.OperationError("channel_failed", text, field="homeserver")
    if name in parts.config.channels.accounts:
        text = f"there is one already: give another name, or first run `klaw channels remove {name}`"
        raise op.OperationError("channel_exists", text, field="name")
    address = (url or TELEGRAM).rstrip("/")
    await _channels(parts).try_account(asked.type, address, asked.token)
    variable, folder, at = _variable(name), parts.paths.config_file.parent, f"channels.accounts.{name}"
    before, refused = await parts.core.files.run(secrets.store, folder, variable, asked.token), None
    try:
        await parts.change({f"{at}.type": asked.type, f"{at}.url": address, f"{at}.token": f"${{{variable}}}"})
    except ConfigError as error:
        refused = error
    if refused is not None:
        await parts.core.files.run(secrets.store, folder, variable, before)
        raise refused
    return await _invitation(parts, name, caller)


@NOUN.operation("channels_invite", ChannelOfUser, changes=True, deadline_s=60, route="POST {name}/invite")
async def invite(asked: ChannelOfUser, caller: Caller, parts: Parts) -> ChannelLink:
    """Make a link, and a QR code, that connects one person's account of the messenger with the user."""
    return await _invitation(parts, asked.name, caller)


@NOUN.operation("channels_pair", CodeToPair, cli="pair", show=_paired, changes=True, deadline_s=60, route="POST pair")
async def pair(asked: CodeToPair, caller: Caller, parts: Parts) -> LinkedAnswer:
    """Let whoever was told a code in a messenger talk as the user. A group becomes a user of its own."""
    channels = _channels(parts)
    stranger = channels.codes.stranger(asked.code, groups=caller.operator)
    channel = channels.running.get(stranger.account) if stranger is not None else None
    if stranger is None or channel is None:
        raise op.OperationError(
            "unknown_code", "nobody has this code, or its hour is over: write to the bot again", field="code"
        )
    user = channel.conversations.group_user(stranger.conversation) if stranger.conversation.group else caller.user
    return _link(await channel.pair(stranger, user))


@NOUN.operation(
    "channels_unpair",
    ConversationToEnd,
    cli="unpair",
    show=_ended,
    changes=True,
    deadline_s=60,
    route="DELETE conversations/{id}",
)
async def unpair(asked: ConversationToEnd, caller: Caller, parts: Parts) -> EndedConversations:
    """End a conversation: nothing that is written there is taken any more."""
    anybodys = caller.operator and asked.user is None
    for channel in _channels(parts).running.values():
        ended = await channel.conversations.unlink(
            lambda link: link.id == asked.id and (anybodys or link.user == caller.user)
        )
        if ended:
            return {"ended": [_link(each) for each in ended]}
    raise op.OperationError("unknown_conversation", "there is no such conversation", field="id")


@NOUN.operation(
    "channels_remove", OneChannel, cli="remove", show=_ended, scope=op.Scope.OPERATOR, changes=True, deadline_s=90,
    route="DELETE {name}",
)  # fmt: skip
async def remove(asked: OneChannel, _caller: Caller, parts: Parts) -> EndedConversations:
    """Remove an account: its conversations end, and its token is removed."""
    from klaw.config import secrets
    from klaw.config.edit import UNSET

    _configured(parts, asked.name)
    ended = await _channels(parts).forget(asked.name)
    await parts.change({f"channels.accounts.{asked.name}": UNSET})
    await parts.core.files.run(secrets.store, parts.paths.config_file.parent, _variable(asked.name), None)
    return {"ended": [_link(each) for each in ended]}


@NOUN.operation(
    "channels_test", OneChannel, cli="test", show=_tested, scope=op.Scope.OPERATOR, deadline_s=60, route="GET {name}"
)
async def test(asked: OneChannel, _caller: Caller, parts: Parts) -> ChannelAnswer:
    """Ask the messenger whether an account works."""
    _configured(parts, asked.name)
    await _channels(parts).test(asked.name)
    return _told(parts, asked.name)


def _channels(parts: Parts) -> Any:
    return parts.listeners.channels


def _configured(parts: Parts, name: str) -> None:
    if name not in parts.config.channels.accounts:
        raise op.OperationError("unknown_channel", "there is no such account: `klaw channels list`", field="name")


def _told(parts: Parts, name: str) -> ChannelAnswer:
    channel = _channels(parts).running.get(name)
    bot = channel.account.bot if channel is not None else None
    return {
        "name": name,
        "type": parts.config.channels.accounts[name].type,
        "bot": bot.name if bot is not None else None,
        "link": bot.link if bot is not None else None,
        "problem": _channels(parts).problems().get(f"channel:{name}"),
    }


def _link(link: Any) -> LinkedAnswer:
    return {
        "id": link.id,
        "channel": link.account,
        "user": link.user,
        "title": link.title,
        "group": link.is_group,
        "chat": link.chat,
    }


async def _invitation(parts: Parts, name: str, caller: Caller) -> ChannelLink:
    from klaw.actor.clock import iso
    from klaw.operations.host.token import picture

    _configured(parts, name)
    bot = await _channels(parts).test(name)
    code, until = _channels(parts).codes.invite(name, caller.user)
    url = bot.link.replace("{code}", code)
    return {
        "name": name,
        "bot": bot.name,
        "url": url,
        "picture": await parts.core.files.run(picture, url),
        "code": code,
        "user": caller.user,
        "expires_at": iso(until),
    }


def _variable(name: str) -> str:
    return f"KLAW_CHANNEL_{re.sub('[^a-z0-9]', '_', name).upper()}_TOKEN"
