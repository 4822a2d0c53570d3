"""What differs between the APIs that providers speak, what their readers share, and what of a provider's words about a
failure may be shown and logged. Pure; knows neither HTTP nor Trio.

Nothing that a provider wrote gets into an error's text, except short machine-readable codes; its words go to
``ProviderError.said``, which ``klaw.llm.providers.http`` masks: they may quote the key and the prompt. Keys are masked
wherever they stand, parts of them too. The caller's user sees the rest; logs, status and other users only see words of
a fixed vocabulary, which can hold nobody's message.
"""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

from klaw.llm.errors import (
    BadCall,
    ContextTooLong,
    OverQuota,
    ProviderError,
    ProviderMalformed,
    ProviderNetworkError,
    ProviderRefused,
    RateLimited,
)
from klaw.llm.providers.thinking import ThinkSplitter
from klaw.llm.types import Completion, Delta, Echo, ReasoningDelta, Request, TakenBack, TextDelta, ToolCall, Usage

MAX_REPLY_BYTES = 4 * 1024 * 1024
"""Text, thinking and tool arguments of one answer together. The largest models write less than 1 MiB."""
MAX_TOOL_CALLS = 128
"""What OpenAI allows in tools of one request; a model that asks for more at once is in a loop: they are left out."""
MAX_ECHO_BYTES = 256 * 1024
"""Of what a provider wants back with one message; of more nothing is kept."""

CODE = re.compile(r"[a-z0-9_.-]{1,64}")
"""What counts as a machine-readable code of a provider."""

_RETRY_LATER = frozenset({408, 425, 429})
_TOO_LONG_STATUS = frozenset({400, 413, 422, 500})
_TOO_LONG = frozenset(
    {"context_length_exceeded", "exceed_context_size_error", "string_above_max_length", "request_too_large", "1261"}
)
"""How providers call a prompt that does not fit: OpenAI and its likes, llama.cpp, Anthropic, GLM."""
_TOO_LONG_WORDS = re.compile(
    r"maximum context|context (?:length|window|size|limit)|model token limit"
    r"|(?:prompt|input|request)(?: length)?(?: is)? too (?:long|large)"
    r"|(?:prompt|input)\b.{0,60}\bexceed|range of input length|maximum (?:allowed )?input|reduce the length",
    re.IGNORECASE | re.DOTALL,
)
"""The same where there is only a text; most servers that speak OpenAI's API have no code for it."""
_SPENT = frozenset(
    {
        "insufficient_quota", "billing_hard_limit_reached", "billing_error", "insufficient_balance", "arrearage",
        "1113",
    }
)  # fmt: skip
"""How providers call an empty account; some say so with status 429 or 400. No waiting cures that."""
_BAD_CALL = re.compile(
    r"tool_use_failed|malformed_function_call|failed to call a function|error parsing tool call|failed_generation",
    re.IGNORECASE,
)
"""How providers say that what the model wrote as a tool call cannot be read."""
_SPENT_WORDS = re.compile(r"credit balance|insufficient (?:balance|credits|funds)|arrearage", re.IGNORECASE)


class CallInProgress:
    """A tool call that is still arriving."""

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []
        self.echo: dict[str, Any] = {}
        """See ``Echo.calls``."""

    @property
    def is_whole(self) -> bool:
        """Whether its arguments are JSON, so that nothing more can belong to them."""
        return _is_json("".join(self.arguments))


class EmptyAnswer(ProviderMalformed):
    """An answer with neither text nor tool calls. It costs like any other; ``usage`` says what, if it was counted."""

    def __init__(self, message: str, usage: Usage | None) -> None:
        super().__init__(message)
        self.usage = usage


class Assembly(ABC):
    """Reads one answer: gives deltas as they come and the completion at the end.

    Args:
        new_id: makes ids for tool calls that have none of their own.
    """

    def __init__(self, new_id: Callable[[], str]) -> None:
        self.size = 0
        """Bytes of content so far: text, thinking and tool calls."""
        self.done = False
        """Whether nothing can follow."""
        self._new_id = new_id
        self._splitter = ThinkSplitter()
        self._text: list[str] = []
        self._thought = False
        self._finish_reason: str | None = None
        self._echo: dict[str, Any] = {}
        """See ``Echo.message``."""
        self._images: list[bytes] = []

    @property
    def complete(self) -> bool:
        """Whether the provider said that the answer is over, in either way."""
        return self.done or self._finish_reason is not None

    @property
    def unopened(self) -> bool:
        """Whether the model left out the tag that opens its thinking."""
        return self._splitter.unopened

    def hold(self) -> None:
        """It is known to do so; see ``ThinkSplitter``. Before anything is fed."""
        self._splitter.holds = True

    def feed_event(self, data: str, name: str = "") -> Iterator[Delta]:
        """Take the data of one event. The result must be exhausted.

        Args:
            data: as it came.
            name: of the event.

        Raises:
            ProviderMalformed: not what the API promises, or too much.
            ProviderRefused: an error in the stream.
        """
        if data.strip() == "[DONE]":  # what OpenAI's API ends with
            self.done = True
        elif name == "error":
            raise refused_in_stream(_parsed(data))
        elif data.strip():
            yield from self.feed(parse(data))

    @abstractmethod
    def feed(self, event: object) -> Iterator[Delta]:
        """Take one decoded event. Raises like ``feed_event``."""

    @abstractmethod
    def feed_whole(self, body: bytes) -> Iterator[Delta]:
        """Take an answer that came in one piece. Raises like ``feed_event``."""

    def finish(self, rest: str = "") -> Iterator[Delta]:
        """The response is over; give what was held back. Call ``completion`` next.

        Args:
            rest: what came outside of events. It may say why there is no more.
        """
        if rest and not self.complete:
            reason = _parsed(rest)
            if not isinstance(reason, str) and _error_text(reason):
                raise refused_in_stream(reason)
        for delta in self._splitter.end():
            yield self._note(delta)

    def completion(self) -> Completion:
        """The whole answer, without the name of who gave it.

        Raises:
            ProviderNetworkError: the response ended too early.
            ProviderMalformed: the answer is empty.
            BadCall: it should have been a tool call.
        """
        if not self.complete:
            raise ProviderNetworkError("the LLM provider's answer was cut off")
        text, usage = "".join(self._text), self._counted()
        called = [call for call in self._called() if call.name or call.id or "".join(call.arguments).strip()]
        calls = _finished(called, self._new_id)
        reason = self._finish_reason or ("tool_calls" if calls else "stop")
        if not text.strip() and not calls and not self._images:
            if "function_call" in reason:
                raise BadCall("what the model wrote as a tool call cannot be read")
            what = "only thinking and no answer" if self._thought else "an empty answer"
            raise EmptyAnswer(f"the model gave {what} (finish reason: {reason})", usage)
        return Completion(
            text=text,
            tool_calls=calls,
            finish_reason=reason,
            usage=usage,
            echo=self._echoed([call.echo for call in called]),
            images=tuple(self._images),
        )

    @abstractmethod
    def _called(self) -> list[CallInProgress]:
        """The tool calls in order."""

    @abstractmethod
    def _counted(self) -> Usage | None:
        """What the provider counted."""

    def _say(self, text: str) -> Iterator[Delta]:
        """A piece of the text, which may hold thinking."""
        for delta in self._splitter.feed(self._clean(text)):
            yield self._note(delta)

    def _think(self, thought: str) -> Iterator[Delta]:
        """A piece of thinking that the provider sends as such, so that the text holds none."""
        if thought:
            self._splitter.holds = False
            yield self._note(ReasoningDelta(self._clean(thought)))

    def _note(self, delta: Delta) -> Delta:
        match delta:
            case TextDelta(text):
                self._text.append(text)
            case ReasoningDelta():
                self._thought = True
            case TakenBack():
                self._text.clear()
                self._thought = True
        return delta

    def _echoed(self, calls: list[dict[str, Any]]) -> Echo | None:
        if not self._echo and not any(calls):
            return None
        try:
            text = json.dumps([self._echo, calls], ensure_ascii=False, allow_nan=False)
            message, plain = json.loads(text.encode("utf-8", "replace"))
        except (ValueError, RecursionError):
            return None
        return Echo(message=message, calls=tuple(plain)) if len(text) <= MAX_ECHO_BYTES else None

    def _clean(self, text: str) -> str:
        """Replace lone surrogates (JSON can carry them, nothing else can). Raises ProviderMalformed at the cap."""
        self.size += len(text.encode("utf-8", "replace"))
        if self.size > MAX_REPLY_BYTES:
            raise ProviderMalformed(f"the LLM provider's answer is longer than {MAX_REPLY_BYTES} bytes")
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class Dialect(Protocol):
    """One API."""

    def url(self, base_url: str | None) -> str:
        """Where requests go."""
        ...

    def headers(self, api_key: str | None) -> Mapping[str, str]:
        """What the API wants besides the usual headers."""
        ...

    def body(self, request: Request, extra: Mapping[str, Any]) -> bytes:
        """Encode a request as JSON. ``extra`` members are added or replace ours; a null one removes ours."""
        ...

    def assembly(self, new_id: Callable[[], str]) -> Assembly:
        """Begin to read an answer. ``new_id`` makes ids for tool calls that have none of their own."""
        ...


def encode(body: dict[str, Any], extra: Mapping[str, Any]) -> bytes:
    """A request body as JSON, see ``Dialect.body``."""
    kept = {key: value for key, value in {**body, **extra}.items() if value is not None}
    # Lone surrogates cannot be encoded; a question mark in a prompt beats a turn that fails for ever.
    return json.dumps(kept, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def parse(text: str) -> object:
    """Decode JSON of a provider. Raises ProviderMalformed."""
    try:
        parsed: object = json.loads(text)
    except (ValueError, RecursionError):
        # Not "from exc": a JSONDecodeError carries the whole document.
        raise ProviderMalformed("the LLM provider sent something that is not JSON") from None
    return parsed


def readable(body: bytes) -> object:
    """What the body of an error says: JSON, the data of an event, or a text; of a page its title. None for nothing."""
    text = body.decode("utf-8", "replace").strip()
    if text.startswith(("event:", "data:")):
        text = text.partition("data:")[2].strip()
    if text.startswith("<"):
        title = re.search(r"<title>([^<]{1,300})</title>|<message>([^<]{1,600})</message>", text, re.IGNORECASE)
        text = (title[1] or title[2]) if title is not None else ""
    return _parsed(text) if text else None


def refused(status: int, payload: object, retry_after_s: float | None = None) -> ProviderError:
    """The error for an error status.

    Args:
        status: HTTP status code.
        payload: the decoded body; a text if it is no JSON, None if it is for no reader.
        retry_after_s: what the provider asks for.
    """
    code, text = error_code(payload), _error_text(payload)
    if _BAD_CALL.search(f"{code} {text}"):
        bad = BadCall("what the model wrote as a tool call cannot be read")
        bad.said = text
        return bad
    kind = _kind(status, code, text)
    retryable = (status in _RETRY_LATER or status >= 500) and kind in (ProviderRefused, RateLimited)
    detail = f" ({code})" if code is not None and code != str(status) else ""
    error = kind(
        f"the LLM provider answered with status {status}{detail}",
        status=status,
        retryable=retryable,
        retry_after_s=retry_after_s,
    )
    error.said = text
    if (param := _error_object(payload).get("param")) and isinstance(param, str) and CODE.fullmatch(param):
        error.param = param
    return error


def refused_in_stream(event: object) -> ProviderError:
    """The error for one that comes as an event. It had begun to answer, so what failed is the provider, unless it says
    otherwise."""
    error = _error_object(event)
    named = [str(error.get(key)) for key in ("code", "status", "status_code", "http_code")]
    numbers = [int(each) for each in named if re.fullmatch(r"[45]\d\d", each)]
    return refused(numbers[0] if numbers else 500, event)


def error_code(payload: object) -> str | None:
    """The machine-readable code of an error object (``{"error": {"code": ...}}``), or None if there is no short one."""
    error = _error_object(payload)
    for key in ("code", "type"):
        value = error.get(key)
        if isinstance(value, str) and CODE.fullmatch(value) and value != "error":
            return value
    return None


def _error_object(payload: object) -> Mapping[str, Any]:
    """The innermost object that tells of the error; providers wrap it in lists and in objects."""
    for _ in range(3):
        if isinstance(payload, list):
            payload = payload[0] if payload else None
        error = payload.get("error") if isinstance(payload, dict) else None
        if not isinstance(error, dict | list):
            break
        payload = error
    return payload if isinstance(payload, dict) else {}


def _kind(status: int, code: str | None, text: str) -> type[ProviderRefused]:
    if status == 402 or code in _SPENT or _SPENT_WORDS.search(text):
        return OverQuota
    if code in _TOO_LONG or status == 413 or (status in _TOO_LONG_STATUS and _TOO_LONG_WORDS.search(text)):
        return ContextTooLong
    return RateLimited if status == 429 else ProviderRefused


_TEXT_KEYS = ("error", "errors", "message", "detail", "details", "msg", "error_msg", "error_message", "reason", "title")


def _error_text(payload: object, depth: int = 0) -> str:
    """What the provider says for people, as it came, out of whatever it is wrapped in."""
    if depth > 5:
        return ""
    if isinstance(payload, str):
        inner = _parsed(payload) if payload[:1] in ("{", "[") else payload
        found = "" if isinstance(inner, str) else _error_text(inner, depth + 1)
        return (found or payload)[:2000]
    if isinstance(payload, list):
        return "; ".join(filter(None, (_error_text(each, depth + 1) for each in payload[:3])))[:2000]
    if not isinstance(payload, dict):
        return ""
    by_name = {str(key).lower(): value for key, value in payload.items()}
    text = next((text for key in _TEXT_KEYS if (text := _error_text(by_name.get(key), depth + 1))), "")
    place = payload.get("loc")
    if isinstance(place, list):  # of a form that was checked: which part of it is wrong
        text = f"{'.'.join(map(str, place[:6]))}: {text}"
    about = payload.get("metadata")
    if isinstance(about, dict) and isinstance(about.get("raw"), str):  # OpenRouter: what the one behind it said
        text = f"{text}: {_error_text(about['raw'], depth + 1)}"
    return text[:2000]


def _parsed(text: str) -> object:
    """What a text is the JSON of; itself if it is none."""
    try:
        parsed: object = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return parsed


def _is_json(text: str) -> bool:
    return not isinstance(_parsed(text), str)


def count(value: object) -> int | None:
    """A number of tokens, if it is one."""
    return value if type(value) is int and value >= 0 else None


def _finished(calls: list[CallInProgress], new_id: Callable[[], str]) -> tuple[ToolCall, ...]:
    """The calls when the answer is over; each with an id of its own, or results could not be told apart. What is wrong
    with one is told to the model when it is carried out."""
    finished: list[ToolCall] = []
    taken: set[str] = set()
    for call in calls:
        own = call.id if call.id and call.id not in taken else new_id()
        taken.add(own)
        finished.append(ToolCall(id=own, name=call.name, arguments=_whole(call.arguments) or "{}"))
    return tuple(finished)


def _whole(parts: list[str]) -> str:
    """The arguments of a call. Some servers begin with an empty object before the parts, or repeat all at the end."""
    whole = "".join(parts)
    others = ("".join(parts[1:]), parts[-1] if parts else "")
    if not whole.strip() or _is_json(whole):
        return whole
    return next((other for other in others if isinstance(_parsed(other), dict)), whole)


MAX_CHARS = 300
MAX_LOOKED_AT = 2000
MASK = "***"

_PART = 4
"""So many characters in a row of a key are masked; services show the last four."""
_SCHEMES = frozenset({"bearer", "basic", "token"})
_WORD = re.compile(r"[^\W\d_]+(?:'[a-z]+)?")
_MASKED = re.compile(r"[*•.…]*\0[\0*•.…]*")
_MIN_WORDS = 2
_GAP = "…"

_WORDS = """
a an the this that your you is are was were be been has have had does do did not no or and of for to in on at by with
from it its as if can cannot could may must should please when only more than too either there any
incorrect invalid wrong missing expired revoked unknown unauthorized unauthenticated authentication authorization
authenticate forbidden denied permission access api key keys token tokens header headers credentials provided account
organization project billing credit credits balance quota plan payment subscription free trial insufficient exceeded
exceeds exceed reached limit limits limited rate usage upgrade
request requests body parameter parameters argument field value values required expected got type format json schema
allowed supported unsupported support enable enabled disabled tool tools function functions image images vision stream
streaming temperature role content messages message input output prompt context length size window long large small
many maximum minimum
model models engine endpoint url path route page resource found exist exists available unavailable deprecated removed
loaded loading load pull server service services overloaded capacity busy internal error errors failed failure timeout
timed connection connect refused gateway bad upstream provider returned response temporarily currently try again later
retry maintenance region country location blocked method
"""
"""Grammar; keys and accounts; requests; places and states."""
_VOCABULARY = frozenset(_WORDS.split())


def shown(text: str, secrets: Iterable[str]) -> str:
    """A provider's text on one line, printable, short, and without any part of the secrets."""
    plain = "".join(char if char.isprintable() else " " for char in text[:MAX_LOOKED_AT])
    line = " ".join(masked(" ".join(plain.split()), secrets).split())
    return line if len(line) <= MAX_CHARS else line[: MAX_CHARS - 1].rstrip() + _GAP


def masked(text: str, secrets: Iterable[str]) -> str:
    """The text with everything hidden that it shares with a secret."""
    low = text.lower()
    if len(low) != len(text):  # a few letters grow; then keys are found in the case they have
        low = text
    hidden = bytearray(len(text))
    for part in _parts(secrets):
        length = min(_PART, len(part))
        windows = {part[start : start + length] for start in range(len(part) - length + 1)}
        for start in range(len(low) - length + 1):
            if low[start : start + length] in windows:
                hidden[start : start + length] = b"\1" * length
    if not any(hidden):
        return text
    return _MASKED.sub(MASK, "".join("\0" if hide else char for char, hide in zip(text, hidden, strict=True)))


def loggable(text: str) -> str:
    """The words of the fixed vocabulary in it, with a sign where others were left out; empty for hardly any."""
    kept: list[str] = []
    count = 0
    for word in _WORD.findall(text[:MAX_LOOKED_AT]):
        known = word.lower() in _VOCABULARY
        count += known
        if known or kept[-1:] != [_GAP]:
            kept.append(word if known else _GAP)
    line = " ".join(kept)
    return line[:MAX_CHARS] if count >= _MIN_WORDS else ""


def _parts(secrets: Iterable[str]) -> Iterable[str]:
    """The words of secrets, without that of an ``Authorization`` header that is none."""
    return {word.lower() for secret in secrets for word in secret.split() if word.lower() not in _SCHEMES}
