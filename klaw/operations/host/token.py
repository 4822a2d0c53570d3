"""Who may use Klaw: access keys, browsers that are logged in, and codes with which a phone logs in."""

import ipaddress
from contextlib import suppress
from typing import Annotated, NotRequired, TypedDict, cast
from urllib.parse import urlsplit

import attrs

from klaw.convert import Bounds
from klaw.operations.handler import Caller, Parts
from klaw.operations.operation import Name, Noun, OfUser, OperationError, Scope, UserName, argument, required

TOKENS = Noun("token", "list, make and revoke access tokens and logins (docs/security.md)")
ADDRESS = r"https?://(\[[0-9A-Fa-f:.]+\]|[\w.-]{1,253})(:[0-9]{1,5})?(/[\w.~-]+)*"
_ADDRESS_OF_INTERFACE = 0x8915
"""SIOCGIFADDR of linux/sockios.h."""


@attrs.frozen(kw_only=True)
class NewToken:
    name: UserName = argument("the user: a-z, 0-9, _ and -", default=attrs.NOTHING)
    operator: bool = argument("operator token: manages the server, sees all users' data", default=False)


@attrs.frozen(kw_only=True)
class TokenToRevoke:
    name: Name = required("all tokens of this user, or one token or login by its id")
    user: UserName | None = argument("only what this user has (default: an operator revokes anybody's)", metavar="NAME")


@attrs.frozen(kw_only=True)
class PhoneToAdd(OfUser):
    operator: bool = argument("with the rights of the operator", default=False)
    address: Annotated[str, Bounds(1, 300, ADDRESS)] | None = argument(
        "where the phone reaches Klaw, such as https://klaw.example.org (default: this machine's address)"
    )


class Token(TypedDict):
    id: str
    user: str
    created_at: str
    operator: NotRequired[bool]
    login_of: NotRequired[str]
    expires_at: NotRequired[str]
    client: NotRequired[str]
    """Of an MCP client that the user let in: what it calls itself."""


class MadeToken(Token):
    token: str


class TokenList(TypedDict):
    allow_local: bool
    tokens: list[Token]


class RevokedTokens(TypedDict):
    revoked: list[Token]


class PhoneCode(TypedDict):
    """``url``: opens the page logged in, once, until ``expires_at``. ``picture``: its QR code, an SVG as a data URL.
    ``addresses``: where else the phone may reach Klaw."""

    user: str
    url: str
    picture: str
    expires_at: str
    addresses: list[str]


@TOKENS.operation("token_list", OfUser)
async def tokens(asked: OfUser, caller: Caller, parts: Parts) -> TokenList:
    """List the tokens and the browsers that are logged in: their ids, users and dates. An operator sees everybody's."""
    access = await parts.core.files.run(parts.listeners.tokens)
    all_users = caller.operator and asked.user is None
    found = [each.told() for each in access.tokens if all_users or each.user == caller.user]
    return {"allow_local": access.local, "tokens": found}


@TOKENS.operation("token_add", NewToken, scope=Scope.OPERATOR, changes=True)
async def add(asked: NewToken, _caller: Caller, parts: Parts) -> MadeToken:
    """Make a token for a user; it is shown only now."""
    token, secret = await parts.core.files.run(lambda: parts.listeners.add_token(asked.name, operator=asked.operator))
    return cast("MadeToken", {**token.told(), "token": secret})


@TOKENS.operation("token_revoke", TokenToRevoke, changes=True)
async def revoke(asked: TokenToRevoke, caller: Caller, parts: Parts) -> RevokedTokens:
    """Revoke the tokens of a user, or one token or login; their connections are closed. Only an operator can revoke
    those of others."""
    of = None if caller.operator and asked.user is None else caller.user
    revoked = await parts.core.files.run(parts.listeners.revoke, asked.name, of)
    if not revoked:
        raise OperationError("unknown_token", "no token has this user or id", field="name")
    return {"revoked": [token.told() for token in revoked]}


@TOKENS.operation("token_phone", PhoneToAdd, changes=True)
async def phone(asked: PhoneToAdd, caller: Caller, parts: Parts) -> PhoneCode:
    """Make a code that logs a phone in, as an address and as a QR code. It can be used once, within ten minutes."""
    if asked.operator and not caller.operator:
        raise OperationError("forbidden", "only the operator may give an operator's rights", field="operator")
    if not (await parts.core.files.run(parts.listeners.tokens)).tokens:
        raise OperationError("no_token", "make an access key first: without one, Klaw serves only this computer")
    given = [asked.address] if asked.address is not None else []
    found = list(dict.fromkeys([*given, *await parts.core.files.run(own_addresses, parts.listeners.address() or "")]))
    if not found:
        text = "a phone cannot reach Klaw: it listens only on this computer. Set gateway.host to 0.0.0.0 and restart it"
        raise OperationError("only_this_computer", text)
    code, until = parts.listeners.make_code(caller.user, operator=asked.operator, asked_with=caller.token)
    url = f"{found[0]}/#/code/{code}"
    made = await parts.core.files.run(picture, url)
    return {"user": caller.user, "url": url, "picture": made, "expires_at": until, "addresses": found}


def own_addresses(listening: str) -> list[str]:
    """Where other machines may reach a server that listens at an address, the likeliest first; none if only this
    machine can. Blocks."""
    there = urlsplit(listening)
    with suppress(ValueError):
        host = ipaddress.ip_address(there.hostname or "")
        hosts = _of_this_machine(host.version) if host.is_unspecified else [str(host)]
        reached = [each for each in map(ipaddress.ip_address, dict.fromkeys(hosts)) if not each.is_loopback]
        scheme = there.scheme.replace("ws", "http")
        return [f"{scheme}://{f'[{each}]' if each.version == 6 else each}:{there.port}" for each in reached]
    return []


def _of_this_machine(version: int) -> list[str]:
    import fcntl
    import socket

    found: list[str] = []
    family, far = (socket.AF_INET6, "2001:db8::1") if version == 6 else (socket.AF_INET, "192.0.2.1")
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        with suppress(OSError):
            probe.connect((far, 9))  # sends nothing: it only chooses the way out
            found.append(str(probe.getsockname()[0]))
        for _, name in socket.if_nameindex() if version == 4 else ():
            with suppress(OSError):  # it has no address
                answer = fcntl.ioctl(probe, _ADDRESS_OF_INTERFACE, name.encode().ljust(256, b"\0"))
                found.append(socket.inet_ntoa(answer[20:24]))
    return found


def picture(url: str) -> str:
    """The QR code of an address, an SVG as a data URL. Blocks."""
    import segno

    made: str = segno.make(url, micro=False).svg_data_uri(border=4, light="#fff", omitsize=True)
    return made


def in_blocks(url: str) -> list[str]:
    """A QR code for a terminal: light is drawn, as most terminals are dark."""
    import segno

    rows = [[not dark for dark in row] for row in segno.make(url, micro=False).matrix_iter(border=2)]
    rows += [[True] * len(rows[0])] * (len(rows) % 2)
    pairs = zip(rows[::2], rows[1::2], strict=True)
    return ["".join(" ▄▀█"[2 * above + below] for above, below in zip(*pair, strict=True)) for pair in pairs]
