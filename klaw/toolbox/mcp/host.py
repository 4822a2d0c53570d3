"""What MCP servers are given of Klaw (people, models, logins), and what they report."""

import enum
import json
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import attrs
import trio

from klaw.actor.clock import iso
from klaw.config import safe_open
from klaw.core import Core
from klaw.domain import tokens
from klaw.errors import McpError
from klaw.llm.client import Llm, note_spending
from klaw.llm.slots import Priority
from klaw.llm.types import ChatMessage, Request
from klaw.toolbox.approvals import Approvals
from klaw.toolbox.spec import ToolContext

MAX_BYTES = 262_144
CREDS_S = 10.0
LOGIN_S = 600.0
"""How long a person has."""


@attrs.define(eq=False, kw_only=True)
class Login:
    """What a person and a connection tell each other; it is over when the connection is made or has failed."""

    redirect: str
    """Where the browser comes back to."""
    device: bool = False
    """With a code, on any device."""
    challenge: Any = None
    """The response with which the server refused what it was asked last."""
    address: str = ""
    """What the person has to open, once it is known."""
    code: str = ""
    """What they have to type there; empty if nothing."""
    problem: str = ""
    """Why it failed; may quote the server."""
    over: bool = False
    _news: trio.Event = attrs.field(factory=trio.Event, init=False)
    _answer: dict[str, str] = attrs.field(factory=dict, init=False)
    _answered: trio.Event = attrs.field(factory=trio.Event, init=False)

    def show(self, address: str, code: str = "") -> None:
        self.address, self.code = address, code
        self._news.set()

    async def wait(self) -> None:
        """Return when there is an address, or, after an answer, when it is over."""
        await self._news.wait()

    def answer(self, address: str) -> bool:
        """Take the address that the browser was sent to. False: it belongs to no login, or to another one."""
        queries = (parse_qs(urlsplit(url).query) for url in (address.strip(), self.address))
        given, asked = ({key: each[0] for key, each in query.items()} for query in queries)
        if self.over or not given.get("state") or given["state"] != asked.get("state"):
            return False
        self._answer, self._news = given, trio.Event()
        self._answered.set()
        return True

    async def answered(self) -> dict[str, str]:
        """The parameters of that address."""
        await self._answered.wait()
        return self._answer

    def end(self, problem: str = "") -> None:
        if not self.over:
            self.over, self.problem = True, problem
            self._news.set()


@attrs.frozen
class LoginFile:
    """``mcp/NAME.tokens.json`` beside the configuration: tokens, the registered client, and what is known of the
    authorization server. Only its owner may read it, backups leave it out like keys, and it is encrypted where
    systemd-creds of this machine can do that. All of it blocks."""

    folder: Path
    """Of the configuration."""
    name: str
    """Of the server, which the configuration limits to letters, digits, ``-`` and ``_``."""

    def read(self) -> dict[str, Any]:
        """What was written; empty without a login. Raises McpError: it cannot be read or decrypted."""
        try:
            data = safe_open.read(self.folder, self._path, MAX_BYTES) or b"{}"
            plain = data if data.startswith(b"{") else self._creds("decrypt", data)
            found = json.loads(plain or b"")
        except (OSError, ValueError):
            found = None
        if not isinstance(found, dict):
            raise McpError("its login cannot be read on this machine; log in again")
        return found

    def write(self, login: dict[str, Any]) -> None:
        """Raises McpError."""
        data = json.dumps(login).encode()
        sealed = self._creds("encrypt", data)
        if sealed is not None and self._creds("decrypt", sealed) == data:
            data = sealed
        try:
            safe_open.replace(self.folder, self._path, data)
        except OSError as error:
            raise McpError(f"its login cannot be stored ({error.strerror or type(error).__name__})") from None

    def remove(self) -> bool:
        """Forget the login. Returns whether there was one."""
        path = self.folder / self._path
        there = path.is_file()
        path.unlink(missing_ok=True)
        return there

    @property
    def _path(self) -> str:
        return f"mcp/{self.name}.tokens.json"

    def _creds(self, verb: str, data: bytes) -> bytes | None:
        """None where that program is not there, or has no key that this user may use."""
        for scope in ((), ("--user",)):
            command = ["systemd-creds", *scope, verb, f"--name=klaw-mcp-{self.name}", "-", "-"]
            with suppress(OSError, subprocess.SubprocessError):
                return subprocess.run(command, input=data, capture_output=True, timeout=CREDS_S, check=True).stdout
        return None


class McpState(enum.StrEnum):
    STARTING = "starting"
    READY = "ready"
    WAITING = "waiting"
    STOPPED = "stopped"


@attrs.frozen(kw_only=True)
class McpReport:
    name: str
    kind: str
    """``stdio`` or ``http``."""
    state: McpState
    since: float
    """Unix seconds."""
    tools: tuple[str, ...] = ()
    """Names that models see; ``left_out`` counts those over ``maxTools``."""
    left_out: int = 0
    users: tuple[str, ...] = ()
    """Who may use them; ``*`` for all."""
    resources: int = 0
    prompts: int = 0
    protocol: str | None = None
    reason: str | None = None
    """Why it is not ready."""
    said: str | None = attrs.field(default=None, repr=False)
    """The last line that its program wrote to standard error, or that it logged; for the operator only."""
    logged: Mapping[str, int] = attrs.field(factory=dict)
    """How many messages it has logged, by level."""
    last_error: str | None = None
    """Class of the last error, also when it is ready again."""
    connects: int = 0
    retry_in_s: float | None = None


@attrs.frozen(kw_only=True)
class McpHost:
    core: Core
    llm: Llm
    approvals: Approvals
    _written: Counter[tuple[str, str]] = attrs.field(factory=Counter, init=False)
    """Tokens of each server and day."""

    @property
    def logins(self) -> Path:
        """The folder below which logins are kept."""
        return self.core.paths.config_file.parent

    async def write(
        self, server: str, limit: int, call: ToolContext, messages: Sequence[ChatMessage], most: int
    ) -> tuple[str, str, bool]:
        """What the model of a call writes for a server, which may use ``limit`` tokens a day: the text, the model, and
        whether it came to its end. Raises McpError: the limit is reached; what ``Meter.stream`` raises."""
        day = (server, self.llm.budget.today())
        if self._written[day] + most + sum(tokens.estimate(each.content) for each in messages) > limit:
            raise McpError(f"its {limit:,} tokens of today (samplingTokens) are used up")
        route, meter = await self.llm.route(call.model or None), self.llm.meter()
        request = Request(model=route.model, messages=tuple(messages), max_tokens=most)
        try:
            async with self.llm.slots.slot(Priority.INTERACTIVE):
                answer = await meter.stream(route, request, lambda _delta: None)
        finally:
            self._written[day] += meter.spent.prompt_tokens + meter.spent.completion_tokens
            now = iso(self.core.clock.now())
            await note_spending(meter.record(), self.core.writer, now, "mcp", call.user, call.chat)  # noqa: ASYNC102
        return answer.text, answer.model or route.name, answer.finish_reason != "length"
