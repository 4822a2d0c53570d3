"""``klaw token``: add, list, revoke, allow-local and deny-local."""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

OPEN = "This machine is served without a token, as user local"
NOBODY = "nobody can connect until you say 'klaw token add USER' or 'klaw token allow-local'"

if TYPE_CHECKING:
    from klaw.gateway.auth import Token


def add_command(args: argparse.Namespace) -> int:
    """Makes a token and prints it; it is shown this once."""
    from klaw.actor.clock import SystemClock, iso
    from klaw.gateway.auth import add_token

    def add() -> int:
        token, secret = add_token(_file(args.home), args.name, iso(SystemClock().now()))
        if args.json:
            _print_json({**_as_json(token), "token": secret})
        else:
            print(secret)
            print(f"Token {token.id} of user {token.user}. It is not stored and will not be shown again.")
            _say_how_local_comes_in(args.home)
        return 0

    return _reporting(add)


def list_command(args: argparse.Namespace) -> int:
    """Prints the tokens' ids, users and dates."""
    from klaw.gateway.auth import load_access

    def show() -> int:
        access = load_access(_file(args.home))
        if args.json:
            _print_json({"allow_local": access.local, "tokens": [_as_json(token) for token in access.tokens]})
            return 0
        for token in access.tokens:
            print(f"{token.id}  {token.user:<32}  {token.created_at}")
        if not access.tokens and access.local:
            print("no tokens: only this machine is served, as user local; make one with: klaw token add USER")
        elif not access.tokens:
            print(f"no tokens: {NOBODY}")
        elif access.local:
            print(f"{OPEN}; klaw token deny-local ends that")
        return 0

    return _reporting(show)


def revoke_command(args: argparse.Namespace) -> int:
    """Removes tokens; a running server closes their connections. Returns 1 if there is none."""
    from klaw.gateway.auth import revoke_tokens

    def revoke() -> int:
        revoked = revoke_tokens(_file(args.home), args.name)
        if args.json:
            _print_json({"revoked": [_as_json(token) for token in revoked]})
        elif revoked:
            print("revoked: " + ", ".join(f"{token.id} ({token.user})" for token in revoked))
            _say_who_is_left(args.home)
        if not revoked:
            print("klaw: no token of this user or id", file=sys.stderr)
        return 0 if revoked else 1

    return _reporting(revoke)


def allow_local_command(args: argparse.Namespace) -> int:
    """Lets this machine in without a token."""
    return _set_local(args, allowed=True)


def deny_local_command(args: argparse.Namespace) -> int:
    """Asks this machine for a token too."""
    return _set_local(args, allowed=False)


def _set_local(args: argparse.Namespace, *, allowed: bool) -> int:
    from klaw.gateway.auth import allow_local

    def change() -> int:
        access = allow_local(_file(args.home), allowed=allowed)
        if args.json:
            _print_json({"allow_local": access.local})
        elif access.local:
            print(f"{OPEN}. Behind a proxy on this machine that adds no forwarding headers, so is everybody.")
        else:
            print("Every connection needs a token now, also from this machine.")
            _say_who_is_left(args.home)
        return 0

    return _reporting(change)


def _say_how_local_comes_in(home: str | None) -> None:
    """After a token was made: what that means for who made it."""
    from klaw.domain.names import LOCAL_USER
    from klaw.gateway.auth import load_access

    access = load_access(_file(home))
    if not access.local and all(token.user != LOCAL_USER for token in access.tokens):
        print(
            "Every connection needs a token from now on, and chats that are open without one end. For your own chats"
            " on this machine (user local):\n  klaw token add local      makes a token; give it as $KLAW_TOKEN\n"
            "  klaw token allow-local    lets this machine in without one"
        )


def _say_who_is_left(home: str | None) -> None:
    from klaw.gateway.auth import load_access

    access = load_access(_file(home))
    if not access.tokens:
        print(f"{OPEN}." if access.local else f"No token is left: {NOBODY}.")


def _reporting(command: Callable[[], int]) -> int:
    from klaw.domain.names import InvalidName
    from klaw.errors import ConfigError

    try:
        return command()
    except (ConfigError, InvalidName) as error:
        print(f"klaw: {error}", file=sys.stderr)
        return 1


def _file(home: str | None) -> Path:
    from klaw.config.paths import Paths
    from klaw.gateway.auth import tokens_file

    return tokens_file(Paths.resolve(home).config_dir)


def _as_json(token: "Token") -> dict[str, str]:
    return {"id": token.id, "user": token.user, "created_at": token.created_at}


def _print_json(value: dict[str, Any]) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=2))
