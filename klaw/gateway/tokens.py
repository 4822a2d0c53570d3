"""Who may connect: the tokens file, and the check that every connection passes.

A token is 32 random bytes, of which the file holds the SHA-256: a plain hash is enough for what cannot be guessed.

Before the first token there is no file, and this machine is served without one. From then on every connection needs a
token, also when the last one was revoked, until ``allow_local`` lets this machine in again.
"""

import fcntl
import hashlib
import hmac
import json
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import attrs
import structlog

from klaw import atomic_file
from klaw.actor.clock import iso
from klaw.config.paths import ensure_private_dir, open_private
from klaw.convert import JOURNAL, OMIT, Bounds, Check, Form, Wire
from klaw.domain.names import LOCAL_USER, UserId, user_id
from klaw.errors import ConfigError

MAX_FILE_BYTES = 1 << 22
FILE_NAME = "tokens.json"
_PREFIX = "klaw_"
MAX_LOGINS = 32
"""Browsers of one user that are logged in, and MCP clients that are connected; the one that would end first goes."""
ACCESS_S = 3600.0
"""How long an MCP client's access token holds."""
CODE_S = 600.0
"""How long a code can be used."""
MAX_CODES = 100

log = structlog.get_logger("klaw.auth")


@attrs.frozen(kw_only=True)
class McpClient:
    """A program that a user let in over OAuth. Its tokens are ``SECRET.REST``, where the SHA-256 of SECRET is that of
    the stored token: by it a refresh token that was used before is recognised."""

    name: str
    """What it calls itself."""
    id: str
    """Its ``client_id``."""
    access: str = attrs.field(default="", repr=False)
    """The SHA-256 of its access token …"""
    access_until: str = ""
    refresh: str = attrs.field(default="", repr=False)
    """… and that of its refresh token, which holds until the stored token ends."""


@attrs.frozen(kw_only=True)
class StoredToken:
    id: str
    """Names the token in lists and for ``revoke``; not secret."""
    user: Annotated[UserId, Check(user_id)]
    sha256: Annotated[str, Bounds(pattern="[0-9a-f]{64}")] = attrs.field(repr=False)
    created_at: str
    operator: Annotated[bool, OMIT] = False
    login_of: Annotated[str | None, OMIT] = None
    """For a browser's login: the id of the token that it was made with, and ends with; its own, if it was made with
    another user's, or with none. For an MCP client: that of the login in which it was let in."""
    expires_at: Annotated[str | None, OMIT] = None
    mcp: Annotated[McpClient | None, OMIT] = None
    """Such a token opens ``/mcp``, nothing else."""

    @property
    def checked(self) -> str:
        """The SHA-256 of the text that requests bring."""
        return self.sha256 if self.mcp is None else self.mcp.access

    def told(self) -> dict[str, Any]:
        told = {name: value for name, value in JOURNAL.write(self).items() if name not in ("sha256", "mcp")}
        return told if self.mcp is None else {**told, "client": self.mcp.name}


@attrs.frozen(kw_only=True)
class Grant:
    """What a connection may do. ``token`` is its id; None: the local user, without one."""

    user: UserId
    token: str | None
    operator: bool = False
    """By such a token, or from this machine while there is no token."""


@attrs.frozen(kw_only=True)
class TokenTable:
    local: Annotated[bool, Wire("allow_local"), Form(lambda value: value is True, bool)] = False
    """Whether this machine needs no token: its user is ``local``."""
    tokens: tuple[StoredToken, ...]


def tokens_file(config_dir: Path) -> Path:
    return config_dir / FILE_NAME


def load_access(path: Path) -> TokenTable:
    """Read the tokens file; if it was never made: no tokens, and this machine allowed in. Raises ConfigError."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise ConfigError.of(f"{path}: has more than {MAX_FILE_BYTES:,} bytes, too many for tokens: restore it")
        return JOURNAL.read(json.loads(data), TokenTable)
    except FileNotFoundError:
        return TokenTable(tokens=(), local=True)
    except OSError as error:
        raise ConfigError.of(f"{path}: {error.strerror or 'cannot be read'}") from error
    except (ValueError, RecursionError) as error:
        text = 'is not a tokens file; restore it, or write {"tokens": []} into it and add the tokens again'
        raise ConfigError.of(f"{path}: {text}") from error


def add_token(path: Path, user: str, created_at: str, *, operator: bool = False) -> tuple[StoredToken, str]:
    """Returns the entry, and the token itself, which is not kept. Raises InvalidName, ConfigError."""
    token, secret = _new(user_id(user), created_at, operator=operator)
    _change(path, lambda access: attrs.evolve(access, tokens=(*access.tokens, token)))
    return token, secret


def _new(user: UserId, created_at: str, **more: Any) -> tuple[StoredToken, str]:
    secret = _PREFIX + secrets.token_urlsafe(32)
    digest = _digest(secret)
    return StoredToken(id=secrets.token_hex(4), user=user, sha256=digest, created_at=created_at, **more), secret


def add_login(path: Path, grant: Grant, created_at: str, expires_at: str) -> str:
    """Log a browser in with what a token grants; the user's oldest login may have to go. Returns the login's secret.
    Raises ConfigError."""
    login, secret = _new(grant.user, created_at, operator=grant.operator, expires_at=expires_at)
    login = attrs.evolve(login, login_of=grant.token or login.id)
    _change(path, lambda access: _with(access, login, created_at))
    return secret


def _with(access: TokenTable, new: StoredToken, now: str) -> TokenTable:
    """With a login or an MCP client, which may take the place of one of the same user, and without what is over."""
    kept = [each for each in access.tokens if each.expires_at is None or each.expires_at > now]
    alike = [each for each in kept if each.login_of and each.user == new.user and bool(each.mcp) is bool(new.mcp)]
    gone = sorted(alike, key=lambda each: each.expires_at or "")[: max(0, len(alike) - MAX_LOGINS + 1)]
    return attrs.evolve(access, tokens=(*(each for each in kept if each not in gone), new))


@attrs.frozen
class ClientTokens:
    access: str = attrs.field(repr=False)
    refresh: str = attrs.field(repr=False)


def add_client(path: Path, grant: Grant, client: McpClient, now: float, holds_s: float) -> ClientTokens | None:
    """Let an MCP client in for the user of a browser's login. None: that login is over. Raises ConfigError."""
    token, secret = _new(grant.user, iso(now), mcp=client)
    token, made = _renewed(token, secret, now, holds_s)
    over = False

    def with_client(access: TokenTable) -> TokenTable:
        nonlocal over
        logins = [each for each in access.tokens if (each.id, each.user) == (grant.token, grant.user)]
        over = not logins
        return access if over else _with(access, attrs.evolve(token, login_of=logins[0].login_of), iso(now))

    _change(path, with_client)
    return None if over else made


def renew_client(path: Path, refresh: str, client_id: str, now: float, holds_s: float) -> ClientTokens | None:
    """New tokens of an MCP client in place of its old ones. None: its refresh token is not valid. One that was used
    before is in two hands: then the client is let in no more. Raises ConfigError."""
    made: ClientTokens | None = None

    def renewed(access: TokenTable) -> TokenTable:
        nonlocal made
        token = _of_client(access, refresh, client_id)
        if token is None or token.mcp is None or (token.expires_at or "") <= iso(now):
            return access
        new: tuple[StoredToken, ...] = ()
        if hmac.compare_digest(token.mcp.refresh, _digest(refresh)):
            changed, made = _renewed(token, refresh.partition(".")[0], now, holds_s)
            new = (changed,)
        return attrs.evolve(access, tokens=(*(each for each in access.tokens if each is not token), *new))

    _change(path, renewed)
    return made


def end_client(path: Path, secret: str, client_id: str) -> None:
    """Let an MCP client in no more, by one of its tokens. Raises ConfigError."""

    def without(access: TokenTable) -> TokenTable:
        token = _of_client(access, secret, client_id)
        left = tuple(each for each in access.tokens if each is not token)
        return access if token is None else attrs.evolve(access, tokens=left)

    _change(path, without)


def _of_client(access: TokenTable, secret: str, client_id: str) -> StoredToken | None:
    digest = _digest(secret.partition(".")[0])
    found = [each for each in access.tokens if each.mcp is not None and hmac.compare_digest(each.sha256, digest)]
    return next((each for each in found if each.mcp is not None and each.mcp.id == client_id), None)


def _renewed(token: StoredToken, secret: str, now: float, holds_s: float) -> tuple[StoredToken, ClientTokens]:
    made = ClientTokens(*(f"{secret}.{secrets.token_urlsafe(32)}" for _ in range(2)))
    digests = {"access": _digest(made.access), "refresh": _digest(made.refresh), "access_until": iso(now + ACCESS_S)}
    assert token.mcp is not None
    return attrs.evolve(token, mcp=attrs.evolve(token.mcp, **digests), expires_at=iso(now + holds_s)), made


def revoke_tokens(path: Path, name: str, of: UserId | None = None) -> tuple[StoredToken, ...]:
    """Remove and return the token of this id with its logins, or all tokens of this user; with ``of`` only what this
    user has. Raises ConfigError."""
    revoked: list[StoredToken] = []

    def without(access: TokenTable) -> TokenTable:
        named = (token for token in access.tokens if name in (token.id, token.user, token.login_of))
        revoked[:] = [token for token in named if of in (None, token.user)]
        left = tuple(token for token in access.tokens if token not in revoked)
        return attrs.evolve(access, tokens=left) if revoked else access

    _change(path, without)
    return tuple(revoked)


def allow_local(path: Path, *, allowed: bool) -> TokenTable:
    """Let connections from this machine in without a token, as the user ``local``, or no longer. Raises ConfigError."""
    return _change(path, lambda access: attrs.evolve(access, local=allowed))


def _change(path: Path, change: Callable[[TokenTable], TokenTable]) -> TokenTable:
    """Change the file under a lock, unless ``change`` returns the same. A new file does not let this machine in by
    itself."""
    ensure_private_dir(path.parent)
    try:
        with os.fdopen(open_private(path.with_suffix(".lock"), os.O_RDWR), "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            before = load_access(path) if path.exists() else TokenTable(tokens=())
            access = change(before)
            if access is before:
                return access
            atomic_file.replace(path, (json.dumps(JOURNAL.write(access), indent=2) + "\n").encode())
            return access
    except OSError as error:
        raise ConfigError.of(f"{path}: {error.strerror or 'cannot be written'}") from error


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


RECHECK_S = 0.5
"""Every frame asks whether its token still holds; the file is looked at again after this time."""


class Authenticator:
    """Checks tokens against the file, which it reads again when it changes. A file that became unreadable, or is gone,
    leaves all as it was: a slip while editing locks nobody in or out. Raises ConfigError: the file exists and cannot be
    used. ``clock``: Unix seconds, by which logins expire."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time, recheck_s: float = RECHECK_S) -> None:
        self.path, self._clock, self._recheck_s = path, clock, recheck_s
        self._looked_at = time.monotonic()
        self._stamp = self._look()
        self._access = load_access(path)
        self._codes: dict[str, tuple[Grant, float]] = {}
        """By the SHA-256 of each: what it grants, and until when (Unix seconds). A restart ends them."""

    @property
    def has_tokens(self) -> bool:
        self._refresh()
        return bool(self._access.tokens)

    def owners(self) -> list[UserId]:
        """Users who may ask what only the operator may; ``local`` while no token says so."""
        self._refresh()
        return sorted({token.user for token in self._access.tokens if token.operator}) or [LOCAL_USER]

    def grant(self, secret: str | None, *, loopback: bool, login: bool = False, mcp: bool = False) -> Grant | None:
        """What a connection with this token, or without one, may do; None: nothing. With ``login`` the secret is a
        browser's cookie: neither may stand in the other's place. ``mcp``: ``/mcp`` is asked, where those of MCP clients
        are valid, too. Every stored token is compared, in constant time each."""
        self._refresh()
        if secret is None:
            owner = not self._access.tokens  # nobody else was given one: it is the server's owner
            return Grant(user=LOCAL_USER, token=None, operator=owner) if loopback and self._access.local else None
        digest = _digest(secret)
        found = [each for each in self._access.tokens if hmac.compare_digest(each.checked, digest)]
        if not found or self._expired(found[0]):
            return None
        client = found[0].mcp
        if client is not None and (not mcp or login or client.access_until <= iso(self._clock())):
            return None
        if client is None and (found[0].login_of is not None) is not login:
            return None
        return Grant(user=found[0].user, token=found[0].id, operator=found[0].operator)

    def listed(self) -> TokenTable:
        return load_access(self.path)

    def add(self, user: str, *, operator: bool) -> tuple[StoredToken, str]:
        return add_token(self.path, user, iso(self._clock()), operator=operator)

    def revoke(self, name: str, of: UserId | None = None) -> tuple[StoredToken, ...]:
        return revoke_tokens(self.path, name, of)

    def make_code(self, user: UserId, *, operator: bool, asked_with: str | None) -> tuple[str, str]:
        """A code with which one browser can log in as the user, and until when. The login ends with the token that the
        code was ``asked_with``, if that is the user's own."""
        self._refresh()
        now = self._clock()
        kept = [(digest, each) for digest, each in self._codes.items() if each[1] > now]
        self._codes = dict(kept[1 - MAX_CODES :])
        asking = [each for each in self._access.tokens if (each.id, each.user) == (asked_with, user)]
        token = asking[0].login_of or asking[0].id if asking else None
        code = secrets.token_urlsafe(16)
        self._codes[_digest(code)] = Grant(user=user, token=token, operator=operator), now + CODE_S
        return code, iso(now + CODE_S)

    def redeem(self, code: str) -> Grant | None:
        """What a code grants, which then is used up; None: nothing, or not any more."""
        grant, until = self._codes.pop(_digest(code), (None, 0.0))
        if grant is None or until <= self._clock():
            return None
        self._refresh()
        return grant if grant.token is None or self.holds(grant) else None

    def holds(self, grant: Grant) -> bool:
        """Whether a grant still holds: the token was not revoked, or none is needed still. A change of the file counts
        after at most ``recheck_s``."""
        if time.monotonic() - self._looked_at >= self._recheck_s:
            self._refresh()
        if grant.token is None:
            return self._access.local
        found = [each for each in self._access.tokens if (each.id, each.user) == (grant.token, grant.user)]
        return any(not self._expired(each) for each in found)

    def _expired(self, token: StoredToken) -> bool:
        return token.expires_at is not None and token.expires_at <= iso(self._clock())

    def _refresh(self) -> None:
        # A stat takes microseconds and the file is small: a thread is not worth making every check asynchronous.
        self._looked_at = time.monotonic()
        stamp = self._look()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._access = load_access(self.path) if stamp is not None else self._access
        except ConfigError:
            log.error("tokens_unreadable", file=FILE_NAME)
        else:
            log.info("tokens_read" if stamp is not None else "tokens_gone", count=len(self._access.tokens))

    def _look(self) -> tuple[int, int, int] | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino
