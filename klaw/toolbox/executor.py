"""Carry out the tool calls of one round at once, each with its own deadline. A call never fails with an exception:
whatever is wrong becomes a text that tells the model what to do. Results are cleaned of control characters, and what is
too long goes to a file.

Providers refuse a request with a call with a doubled id, an odd name or arguments that are no JSON object, and a chat
with one in its history would be stuck for ever. So a call is put right before it is stored (``prepare``).
"""

import json
import os
import re
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import attrs
import structlog
import trio

from klaw import atomic_file
from klaw.actor.failure import error_class, split_cancelled, where
from klaw.actor.threads import Threads
from klaw.config import safe_open
from klaw.config.paths import below_of_user
from klaw.convert import MOST_VALUES, read_json
from klaw.domain.names import UserId
from klaw.domain.text import clean, clean_output, cut, printable
from klaw.errors import BadValue, KlawError
from klaw.llm.types import Image, ToolCall
from klaw.toolbox.spec import (
    MAX_NAME,
    Arguments,
    Permission,
    PicturedText,
    Toolbox,
    ToolContext,
    ToolFailure,
    ToolSpec,
    call_text,
)

_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
"""What OpenAI and Anthropic both take."""
_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9_-]")
SHOWN_CHARS = 120
MAX_CALLS = 32
MAX_AT_ONCE = 8
"""The deadline of the others begins when they start."""
MAX_NAMES_SHOWN = 40
MAX_CHARS = 50_000_000
"""A longer result is cut here at once, before any work is done on it."""
FOLDER = "tool-output"
"""In the user's workspace: outputs that are too long for the model. The file tools can read it."""
MAX_FILE_BYTES = 1_000_000
"""The file tools read files up to 1 MB."""
MAX_FILES = 200
MAX_LOOKED_AT = 20_000
"""Names in the folder; a program can make any number."""
NOT_KEPT = "The rest was not kept."
NOT_SEEN = "[This model cannot see pictures.]"
WHY = "after reading from outside; it would stand in later conversations"

MAX_ARGUMENTS = 1_000_000
MAX_SHOWN = 8

log = structlog.get_logger("klaw.tools")


@attrs.frozen(kw_only=True)
class PreparedCall:
    """A call that can be stored: its id is unique, and its name and arguments are such as every provider takes."""

    call: ToolCall
    arguments: Mapping[str, Any] = attrs.Factory(dict)
    problem: str | None = None


def prepare(
    calls: Sequence[ToolCall], *, taken: Container[str], new_id: Callable[[], str], most: int
) -> tuple[PreparedCall, ...]:
    """Correct the calls of one round. Ids of earlier rounds are ``taken``: some providers count from 0 in each answer.
    Of more than ``most`` calls the model is told to repeat the others."""
    prepared: list[PreparedCall] = []
    seen: set[str] = set()
    for number, call in enumerate(calls):
        doubled = call.id in seen
        seen.add(call.id)
        unusable = doubled or call.id in taken or not _ID.fullmatch(call.id)
        name = _NOT_IN_NAME.sub("_", call.name)[:MAX_NAME] or "unnamed"
        own = ToolCall(id=new_id() if unusable else call.id, name=name, arguments="{}")
        arguments, problem = parse_arguments(call.arguments)
        if doubled:
            problem = "Two calls of this round have the same id; only the first was carried out. Call it again alone."
        elif number >= most:
            problem = f"Too many calls: only {most} are carried out in one round. Call it again in the next one."
        if problem is None:
            own = attrs.evolve(own, arguments=clean(json.dumps(arguments, ensure_ascii=False)))
        prepared.append(PreparedCall(call=own, arguments={} if problem else arguments, problem=problem))
    return tuple(prepared)


def in_short(arguments: Mapping[str, Any]) -> str:
    """The arguments of a call for the user who watches: one line of printable characters, at most ``SHOWN_CHARS``."""
    parts = []
    for name, value in list(arguments.items())[:MAX_SHOWN]:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        line = printable(" ".join(text[: SHOWN_CHARS + 1].split()))
        parts.append(line if len(arguments) == 1 else f"{printable(name[:MAX_NAME])}: {line}")
    return cut(", ".join(parts), SHOWN_CHARS)


def parse_arguments(text: str) -> tuple[dict[str, Any], str | None]:
    """The arguments of a call and what is wrong with them."""
    shown = json.dumps(clean(text[:SHOWN_CHARS]), ensure_ascii=False)
    if len(text) > MAX_ARGUMENTS:
        return {}, f"The arguments have more than {MAX_ARGUMENTS:,} characters. Do it in several calls."
    try:
        value = read_json(clean(text).encode()) if text.strip() else {}
        if isinstance(value, str):  # some models encode the object twice
            value = read_json(clean(value).encode())
        json.dumps(value, allow_nan=False)  # 1e999 is read as infinity
    except RecursionError:
        return {}, "The arguments are nested too deep."
    except json.JSONDecodeError:
        return {}, f"The arguments are not JSON. They must be one JSON object; they began with {shown}."
    except ValueError:
        return {}, f"The arguments hold NaN, a number that is too large, or more than {MOST_VALUES:,} values."
    if not isinstance(value, dict | None):
        return {}, f"The arguments must be one JSON object with the parameters by name; they were {shown}."
    return value or {}, None


@attrs.frozen
class Overflow:
    files: Threads
    workspace: Path
    new_id: Callable[[], str]

    async def keep(self, user: UserId, tool: str, text: str) -> str:
        """Write an output to a file. Returns a sentence on where it is."""
        file = f"{tool}-{self.new_id()}.txt"
        try:
            whole = await self.files.run(_write, self.workspace, user, file, text)
        except OSError as error:  # a full disk
            log.warning("tool_output_not_kept", error=error_class(error))
            return NOT_KEPT
        return f"{'All of it' if whole else 'The first 1 MB of it'} is in the file {FOLDER}/{file} of the workspace."


def _write(workspace: Path, user: UserId, name: str, text: str) -> bool:
    data = text.encode("utf-8", "replace")
    whole = len(data) <= MAX_FILE_BYTES
    data = data if whole else data[:MAX_FILE_BYTES].decode("utf-8", "ignore").encode()
    with safe_open.opened_folder(workspace, below_of_user(user, FOLDER), make=True) as folder:
        atomic_file.create(name, data, folder=folder)
        _prune(folder)
    return whole


def _prune(folder: int) -> None:
    """Remove the oldest files, by their times: names begin with that of the tool."""
    with os.scandir(folder) as entries:
        found = sorted(
            (entry.stat(follow_symlinks=False).st_mtime_ns, entry.name)
            for entry in islice(entries, MAX_LOOKED_AT)
            if entry.is_file(follow_symlinks=False) and entry.name.endswith(".txt")
        )
    for _, name in found[:-MAX_FILES]:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)


Approve: TypeAlias = Callable[[ToolContext, ToolSpec, Arguments], Awaitable[str | None]]
"""Asks the user for permission. Returns None when they agree, else why not, for the model."""


@attrs.frozen(kw_only=True)
class CallResult:
    call: ToolCall
    text: str
    pictures: tuple[Image, ...] = ()
    """Not stored."""
    failed: bool = False
    origin: str = "tool"
    chars: int = 0
    """Length of the whole output."""
    duration_ms: float = 0.0
    """The wait for the user's approval is included."""


OnStart: TypeAlias = Callable[[ToolCall], None]
OnResult: TypeAlias = Callable[[CallResult], Awaitable[None]]


@attrs.define(kw_only=True, eq=False)
class Executor:
    """Carries out calls for everybody; it holds no state of its own but settings."""

    toolbox: Toolbox
    overflow: Overflow | None = None
    """Where too long outputs go; None cuts them."""
    max_output_chars: int = 16_000
    timeout_s: float = 60.0
    """The deadline of tools that have none of their own."""
    approve: Approve | None = None
    """None refuses tools that need it."""

    async def run(
        self,
        calls: Sequence[PreparedCall],
        context: ToolContext,
        *,
        on_start: OnStart | None = None,
        on_result: OnResult | None = None,
    ) -> tuple[CallResult, ...]:
        """Carry out the calls of one round. Returns the results in their order. ``on_result`` is called as each call
        ends, so that its result can be stored; what it raises ends the round. ``on_start`` must not raise."""
        results: dict[int, CallResult] = {}
        failures: list[Exception] = []
        limiter = trio.CapacityLimiter(MAX_AT_ONCE)

        async def carry_out(number: int, prepared: PreparedCall) -> None:
            async with limiter:
                if on_start is not None:
                    on_start(prepared.call)
                results[number] = await self._result(prepared, attrs.evolve(context, call=prepared.call.id))
            if on_result is None:
                return
            try:
                await on_result(results[number])
            except Exception as error:  # noqa: BLE001 - raised below, without the nursery's group around it
                failures.append(error)
                nursery.cancel_scope.cancel(reason="a result could not be handed on")

        async with trio.open_nursery() as nursery:
            for number, prepared in enumerate(calls):
                nursery.start_soon(carry_out, number, prepared)
        if failures:
            raise failures[0]
        return tuple(results[number] for number in range(len(calls)))

    async def _result(self, prepared: PreparedCall, context: ToolContext) -> CallResult:
        begin = trio.current_time()
        spec = self.toolbox.find(prepared.call.name, context)
        outcome = await self._attempt(spec, prepared, context)
        whole = outcome if isinstance(outcome, str) else outcome.text
        return CallResult(
            call=prepared.call,
            text=await self._fit(context, prepared.call.name, whole),
            pictures=outcome.pictures if isinstance(outcome, PicturedText) and context.sees else (),
            failed=isinstance(outcome, ToolFailure),
            origin=spec.origin if spec is not None else "tool",
            chars=len(whole),
            duration_ms=(trio.current_time() - begin) * 1000,
        )

    async def _attempt(
        self, spec: ToolSpec | None, prepared: PreparedCall, context: ToolContext
    ) -> str | PicturedText | ToolFailure:
        name = prepared.call.name
        if prepared.problem is not None:
            return ToolFailure(prepared.problem)
        if spec is None:
            offered = [spec.name for spec in self.toolbox.offered(context)]
            names = ", ".join(offered[:MAX_NAMES_SHOWN]) + (", …" if len(offered) > MAX_NAMES_SHOWN else "")
            return ToolFailure(f"There is no tool {name} here. There are: {names or 'none'}.")
        try:
            arguments = spec.bind(prepared.arguments)
        except BadValue as wrong:
            return ToolFailure.of(f"{name} was not run: {'; '.join(map(str, wrong.problems))}")
        except Exception as error:  # noqa: BLE001 - a source of tools with a faulty check must not end the turn
            return _failed(spec, error)
        try:
            return await self._invoke(spec, context, arguments)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - SystemExit: a library that thinks it is a program
            return _failed(spec, error)
        except BaseExceptionGroup as group:
            # Only the cancellation goes on: what failed beside it concerns nobody any more.
            failure, rest = split_cancelled(group)
            if failure is not None:
                _failed(spec, failure)
            raise (rest or group) from None

    async def _invoke(
        self, spec: ToolSpec, context: ToolContext, arguments: Arguments
    ) -> str | PicturedText | ToolFailure:
        asked = await permission_asked(spec, context, arguments)
        if asked is not None:
            if self.approve is None:
                return ToolFailure(f"{spec.name} was not run: nobody can permit it here.")
            refusal = await self.approve(context, asked, arguments)
            if refusal is not None:
                return ToolFailure(refusal)
            context = attrs.evolve(context, allowed=True)
        limit_s = spec.timeout_s if spec.timeout_s is not None else self.timeout_s
        context.trail.outside |= spec.reaches_out  # also a failure's text is the other side's
        with trio.move_on_after(limit_s) as scope:
            output = await spec.invoke(attrs.evolve(context, scope=scope), arguments)
        if scope.cancelled_caught:
            log.warning("tool_timed_out", tool=spec.name, seconds=limit_s)
            return ToolFailure(
                f"{spec.name} did not finish within {limit_s:g} s and was stopped. Whether it had an effect is unknown."
            )
        text = _text(spec, output)
        if isinstance(text, ToolFailure):
            return text
        context.trail.succeeded(spec.name, changes=spec.permission is not Permission.READ)
        if not isinstance(output, PicturedText):
            return text
        return attrs.evolve(output, text=text if context.sees else f"{text}\n{NOT_SEEN}")

    async def _fit(self, context: ToolContext, name: str, text: str) -> str:
        """Cut a text that is too long, and keep all of it in a file."""
        if len(text) <= self.max_output_chars:
            return text
        shown = text[: self.max_output_chars]
        kept = await self.overflow.keep(context.user, name, text) if self.overflow is not None else NOT_KEPT
        return f"{shown}\n\n[Cut: these are the first {len(shown)} of {len(text)} characters. {kept}]"


def _text(spec: ToolSpec, output: Any) -> str | ToolFailure:
    if isinstance(output, ToolFailure):
        return ToolFailure(clean_output(output.text[:MAX_CHARS]))
    if isinstance(output, PicturedText):
        output = output.text
    if isinstance(output, str):
        text = clean_output(output[:MAX_CHARS])
    else:
        try:
            # A number that is no JSON, or an object of a type that is not, is the tool's fault; say so.
            text = clean_output(json.dumps(output, ensure_ascii=False, allow_nan=False)[:MAX_CHARS])
        except (TypeError, ValueError, RecursionError) as error:
            log.warning("tool_output_unusable", tool=spec.name, error=error_class(error))
            return ToolFailure(f"{spec.name} ran, but returned something that cannot be shown (NaN, or no JSON).")
    return text if text.strip() else "(no output)"


def _failed(spec: ToolSpec, error: BaseException) -> ToolFailure:
    """The text of Klaw's own errors is safe to show; others may hold anything, so only their class is named."""
    log.warning("tool_failed", tool=spec.name, error=error_class(error), where=where(error))
    if isinstance(error, KlawError) and str(error):
        return ToolFailure(f"{spec.name} failed: {clean_output(str(error))}.")
    return ToolFailure(f"{spec.name} failed with {error_class(error)}. Try other arguments or another way.")


async def permission_asked(spec: ToolSpec, context: ToolContext, arguments: Arguments) -> ToolSpec | None:
    """The tool with the question for the user before this call; None when there is none.

    Once a turn or a run has read anything from outside, the model may write its words. So a call that changes what
    later prompts are made of (``ToolSpec.lasting``) needs the user's permission.
    """
    if spec.permission is Permission.APPROVAL:
        return spec
    lasting = spec.lasting
    if context.trail.outside and (lasting if isinstance(lasting, bool) else await lasting(context, arguments)):

        async def question(_context: ToolContext, arguments: Arguments) -> str:
            return f"[{WHY}] {call_text(spec, arguments)}"

        return attrs.evolve(spec, question=question)
    return None
