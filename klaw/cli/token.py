"""``klaw token``: add, list, revoke, allow-local and deny-local. They change a file that a running server watches."""

from typing import TYPE_CHECKING, Annotated, Any

import attrs

from klaw.cli.admin_call import call
from klaw.cli.operations import Here, command
from klaw.convert import Bounds, Check
from klaw.domain.names import LOCAL_USER, user_id
from klaw.errors import KlawError
from klaw.operations.host.token import ADDRESS, TokenToRevoke
from klaw.operations.operation import Nothing, Noun, argument, required

if TYPE_CHECKING:
    from klaw.gateway.tokens import StoredToken, TokenTable

NOUN = Noun("token", "make, list and revoke access tokens (docs/security.md)", local=True)
OPEN = "This machine needs no token: it is user local"
NOBODY = "nobody can connect before 'klaw token add USER' or 'klaw token allow-local'"


@attrs.frozen(kw_only=True)
class TokenUser:
    name: Annotated[str, Check(user_id)] = required("the user: a-z, 0-9, _ and -")


@attrs.frozen(kw_only=True)
class TokenToAdd(TokenUser):
    operator: bool = argument("operator token: manages the server, sees all users' data", default=False)
    qr: bool = argument("show a QR code that logs a phone in, once, instead", default=False)
    url: Annotated[str, Bounds(1, 300, ADDRESS)] | None = argument(
        "with --qr: where the phone reaches Klaw (default: this machine's address)", metavar="ADDRESS"
    )


@command(NOUN, "token_add", TokenToAdd, cli="add")
def add(asked: TokenToAdd, here: Here) -> dict[str, Any]:
    """Make a token for a user and print it once."""
    if asked.qr:
        return _phone(asked, here)
    from klaw.actor.clock import SystemClock, iso
    from klaw.gateway.tokens import add_token, tokens_file

    now = iso(SystemClock().now())
    token, secret = add_token(tokens_file(here.paths.config_dir), asked.name, now, operator=asked.operator)
    here.say(secret, f"Token {token.id} of user {token.user}. It is not stored and will not be shown again.")
    access = _access(here)
    if not access.local and all(each.user != LOCAL_USER for each in access.tokens):
        here.say(
            "Every connection needs a token from now on; open chats without one end. For your own chats on this machine"
            " (user local):",
            "  klaw token add local      makes a token; give it as $KLAW_TOKEN",
            "  klaw token allow-local    lets this machine in without one",
        )
    return {**token.told(), "token": secret}


def _phone(asked: TokenToAdd, here: Here) -> dict[str, Any]:
    from klaw.operations.host.token import in_blocks
    from klaw.operations.lines import minute

    made = call(here.paths, "token_phone", user=asked.name, operator=asked.operator, address=asked.url)
    here.say(*in_blocks(made["url"]), made["url"])
    here.say(
        f"Scan it with the phone: it opens Klaw, logged in as {made['user']}, once, until {minute(made['expires_at'])}."
    )
    if others := made["addresses"][1:]:
        here.say(f"If the phone cannot open that address, give another one with --url: {', '.join(others)}")
    return made


@command(NOUN, "token_list", Nothing, cli="list")
def show(_asked: Nothing, here: Here) -> dict[str, Any]:
    """List the tokens and the browsers that are logged in: their ids, users and dates."""
    access = _access(here)
    here.say(*(f"{token.id}  {token.user:<32}  {token.created_at}{_about(token)}" for token in access.tokens))
    if not access.tokens:
        only = "only this machine can connect, as user local; make one with: klaw token add USER"
        here.say(f"no tokens: {only if access.local else NOBODY}")
    elif access.local:
        here.say(f"{OPEN}; klaw token deny-local ends that")
    return {"allow_local": access.local, "tokens": [token.told() for token in access.tokens]}


@command(NOUN, "token_revoke", TokenToRevoke, cli="revoke")
def revoke(asked: TokenToRevoke, here: Here) -> dict[str, Any]:
    """Revoke the tokens of a user, or one token. A running server closes their connections."""
    from klaw.gateway.tokens import revoke_tokens, tokens_file

    revoked = revoke_tokens(tokens_file(here.paths.config_dir), asked.name, user_id(asked.user) if asked.user else None)
    if not revoked:
        raise KlawError("no token has this user or id; `klaw token list` shows them")
    here.say("revoked: " + ", ".join(f"{token.id} ({token.user})" for token in revoked))
    _say_who_is_left(here)
    return {"revoked": [token.told() for token in revoked]}


@command(NOUN, "token_allow_local", Nothing, cli="allow-local")
def allow_local(_asked: Nothing, here: Here) -> dict[str, Any]:
    """Let connections from this machine in without a token, as user local."""
    return _set_local(here, allowed=True)


@command(NOUN, "token_deny_local", Nothing, cli="deny-local")
def deny_local(_asked: Nothing, here: Here) -> dict[str, Any]:
    """Ask connections from this machine for a token too, as after the first `klaw token add`."""
    return _set_local(here, allowed=False)


def _set_local(here: Here, *, allowed: bool) -> dict[str, Any]:
    from klaw.gateway.tokens import allow_local, tokens_file

    access = allow_local(tokens_file(here.paths.config_dir), allowed=allowed)
    if access.local:
        here.say(f"{OPEN}. If a proxy on this machine adds no forwarding headers, all who reach it are user local.")
    else:
        here.say("Every connection needs a token now, also from this machine.")
        _say_who_is_left(here)
    return {"allow_local": access.local}


def _say_who_is_left(here: Here) -> None:
    access = _access(here)
    if not access.tokens:
        here.say(f"{OPEN}." if access.local else f"No token is left: {NOBODY}.")


def _access(here: Here) -> "TokenTable":
    from klaw.gateway.tokens import load_access, tokens_file

    return load_access(tokens_file(here.paths.config_dir))


def _about(token: "StoredToken") -> str:
    told = ["operator"] if token.operator else []
    told += [f"MCP client: {token.mcp.name}"] if token.mcp else []
    told += [f"login with {token.login_of} until {token.expires_at}"] if token.login_of else []
    return f"  {', '.join(told)}" if told else ""
