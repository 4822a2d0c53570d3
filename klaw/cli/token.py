"""``klaw token add``, ``klaw token list`` and ``klaw token revoke``."""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
        return 0

    return _reporting(add)


def list_command(args: argparse.Namespace) -> int:
    """Prints the tokens' ids, users and dates."""
    from klaw.gateway.auth import load_tokens

    def show() -> int:
        tokens = load_tokens(_file(args.home))
        if args.json:
            _print_json({"tokens": [_as_json(token) for token in tokens]})
        elif not tokens:
            print("no tokens: only this machine is served, as user local; make one with: klaw token add USER")
        for token in () if args.json else tokens:
            print(f"{token.id}  {token.user:<32}  {token.created_at}")
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
        if not revoked:
            print("klaw: no token of this user or id", file=sys.stderr)
        return 0 if revoked else 1

    return _reporting(revoke)


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
