"""The refusals of providers: their class of error, and which of their words may be shown and logged. Pure.

Only short machine-readable codes get into an error's text. Other words may quote the key and the prompt: they go to
``ProviderError.said``, for the caller's user, with keys masked; all others only see words of a fixed vocabulary.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from klaw.llm.errors import BadCall, ContextTooLong, OverQuota, ProviderError, ProviderRefused, RateLimited

CODE = re.compile(r"[a-z0-9_.-]{1,64}")

_RETRY_LATER = frozenset({408, 425, 429})
_TOO_LONG_STATUS = frozenset({400, 413, 422, 500})
_TOO_LONG = frozenset(
    {"context_length_exceeded", "exceed_context_size_error", "string_above_max_length", "request_too_large", "1261"}
)
"""OpenAI and its likes, llama.cpp, Anthropic, GLM."""
_TOO_LONG_WORDS = re.compile(
    r"maximum context|context (?:length|window|size|limit)|model token limit"
    r"|(?:prompt|input|request)(?: length)?(?: is)? too (?:long|large)"
    r"|(?:prompt|input)\b.{0,60}\bexceed|range of input length|maximum (?:allowed )?input|reduce the length",
    re.IGNORECASE | re.DOTALL,
)
"""Most servers that speak OpenAI's API have no code for it."""
_SPENT = frozenset(
    {
        "insufficient_quota", "billing_hard_limit_reached", "billing_error", "insufficient_balance", "arrearage",
        "1113",
    }
)  # fmt: skip
"""An empty account; some say so with status 429 or 400."""
_BAD_CALL = re.compile(
    r"tool_use_failed|malformed_function_call|failed to call a function|error parsing tool call|failed_generation"
    r"|attempted to call tool|tool call validation failed",
    re.IGNORECASE,
)
_SPENT_WORDS = re.compile(r"credit balance|insufficient (?:balance|credits|funds)|arrearage", re.IGNORECASE)


def readable(body: bytes) -> object:
    """The body of an error: JSON, the data of an event, a text, or the title of a page; None for nothing."""
    text = body.decode("utf-8", "replace").strip()
    if text.startswith(("event:", "data:")):
        text = text.partition("data:")[2].strip()
    if text.startswith("<"):
        title = re.search(r"<title>([^<]{1,300})</title>|<message>([^<]{1,600})</message>", text, re.IGNORECASE)
        text = (title[1] or title[2]) if title is not None else ""
    return parsed(text) if text else None


def refused(status: int, payload: object, retry_after_s: float | None = None) -> ProviderError:
    """The error for an error status; ``payload`` is the decoded body."""
    code, text = error_code(payload), error_text(payload)
    if _BAD_CALL.search(f"{code} {text}"):
        bad = BadCall("the model's tool call cannot be read")
        bad.said = text
        return bad
    kind = _kind(status, code, text)
    retryable = (status in _RETRY_LATER or status >= 500) and kind in (ProviderRefused, RateLimited)
    detail = f" ({code})" if code is not None and code != str(status) else ""
    answered = f"the LLM provider answered with status {status}{detail}"
    error = kind(answered, status=status, retryable=retryable, retry_after_s=retry_after_s)
    error.said = text
    if (param := _error_object(payload).get("param")) and isinstance(param, str) and CODE.fullmatch(param):
        error.param = param
    return error


def refused_in_stream(event: object) -> ProviderError:
    error = _error_object(event)
    named = [str(error.get(key)) for key in ("code", "status", "status_code", "http_code")]
    numbers = [int(each) for each in named if re.fullmatch(r"[45]\d\d", each)]
    return refused(numbers[0] if numbers else 500, event)


def error_code(payload: object) -> str | None:
    error = _error_object(payload)
    for key in ("code", "type"):
        value = error.get(key)
        if isinstance(value, str) and CODE.fullmatch(value) and value != "error":
            return value
    return None


def _error_object(payload: object) -> Mapping[str, Any]:
    """The innermost one; providers wrap it in lists and in objects."""
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


_TEXT_KEYS = (
    "error", "errors", "message", "detail", "details", "msg", "error_msg", "error_message", "reason", "title",
    "base_resp", "status_msg",
)  # fmt: skip


def error_text(payload: object, depth: int = 0) -> str:
    """The provider's text for people, out of whatever it is wrapped in."""
    if depth > 5:
        return ""
    if isinstance(payload, str):
        inner = parsed(payload) if payload[:1] in ("{", "[") else payload
        found = "" if isinstance(inner, str) else error_text(inner, depth + 1)
        return (found or payload)[:2000]
    if isinstance(payload, list):
        return "; ".join(filter(None, (error_text(each, depth + 1) for each in payload[:3])))[:2000]
    if not isinstance(payload, dict):
        return ""
    by_name = {str(key).lower(): value for key, value in payload.items()}
    text = next((text for key in _TEXT_KEYS if (text := error_text(by_name.get(key), depth + 1))), "")
    place = payload.get("loc")
    if isinstance(place, list):  # of a form that was checked: which part of it is wrong
        text = f"{'.'.join(map(str, place[:6]))}: {text}"
    about = payload.get("metadata")
    if isinstance(about, dict) and isinstance(about.get("raw"), str):  # OpenRouter: what the one behind it said
        text = f"{text}: {error_text(about['raw'], depth + 1)}"
    return text[:2000]


def parsed(text: str) -> object:
    """The value of a JSON text; else the text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def is_json(text: str) -> bool:
    return not isinstance(parsed(text), str)


MAX_CHARS = 300
MAX_LOOKED_AT = 2000
MASK = "***"

_PART = 4
"""This many characters in a row of a key are masked; services show the last four."""
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
    return {word.lower() for secret in secrets for word in secret.split() if word.lower() not in _SCHEMES}
