"""What a client of another protocol sends: a whole transcript each time, of which only the end is new."""

import binascii
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Annotated, Any, Literal

import attrs

from klaw.api.side_questions import is_side_question
from klaw.chats.requests import ClientCall, ClientRound
from klaw.convert import Form, Wire
from klaw.domain.attachment import MAX_FILES
from klaw.domain.text import clean, one_line
from klaw.errors import BadValue, Problem

MAX_MESSAGES = 10_000
MAX_CALLS_EACH = 128
"""Calls of one message whose results go on with the answer: the model is shown all of them, or none."""
_ATTACHED = re.compile(r"\A<attached_files>\s*(?:<file [^<>]*/>\s*)*</attached_files>\s*")
"""What Open WebUI puts before the text of a message with pictures."""
_BASE64 = 1 << 20
"""Characters that are decoded at once, so that other threads have their turn."""


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return _ATTACHED.sub("", clean(value))
    if not isinstance(value, list):
        raise TypeError("must be a text or a list of parts")
    parts = [each.get("text") or each.get("refusal") for each in value if isinstance(each, Mapping)]
    if any(isinstance(each, Mapping) and each.get("type") in ("input_audio", "file") for each in value):
        raise ValueError("sound and files are not taken here; send files as attachments of a chat")
    return _ATTACHED.sub("", clean("\n".join(each for each in parts if isinstance(each, str))))


def _pictures(value: Any) -> list[str]:
    parts = [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []
    pictures = [each.get("image_url") for each in parts if each.get("type") == "image_url"]
    found = [each.get("url") if isinstance(each, Mapping) else each for each in pictures]
    return [each if isinstance(each, str) else "" for each in found]


def _bytes_of(address: str, field: str) -> bytes:
    """The content of a picture. Raises BadValue: it is no data: URL; nothing is fetched from elsewhere."""
    head, comma, data = address.partition(",")
    with suppress(ValueError):
        if head.startswith("data:") and head.endswith(";base64") and comma and "=" not in data[:-2]:
            pieces = (data[at : at + _BASE64] for at in range(0, len(data), _BASE64))
            return b"".join(binascii.a2b_base64(each, strict_mode=True) for each in pieces)
    text = "must be a picture in base64 (data:image/png;base64,…); pictures are not fetched from other addresses"
    raise BadValue((Problem(field, text),))


@attrs.frozen(kw_only=True)
class SentCall:
    """A call of one of the client's tools, as the client has it."""

    id: str | None
    """None where the protocol has none."""
    name: str
    arguments: str
    result: str | None = None

    @property
    def in_words(self) -> str:
        return f"[called {json.dumps({'name': self.name, 'arguments': self.arguments}, ensure_ascii=False)}]"


def _calls(value: Any) -> list[SentCall]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise TypeError("must be a list")
    found: list[SentCall] = []
    for each in value:
        call = each if isinstance(each, Mapping) else {}
        function = next((each for kind in ("function", "custom") if isinstance(each := call.get(kind), Mapping)), call)
        name, given = function.get("name"), function.get("arguments", function.get("input", "{}"))
        if not isinstance(name, str) or not name:
            raise ValueError("must be calls with the names of their functions")
        arguments = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
        own = clean(own) if isinstance(own := call.get("id"), str) else None
        found.append(SentCall(id=own or None, name=clean(name), arguments=clean(arguments)))
    return found


@attrs.frozen(kw_only=True)
class TranscriptMessage:
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Annotated[str, Form(_text, str)] = ""
    pictures: Annotated[list[str], Wire(name="content"), Form(_pictures, list)] = attrs.Factory(list)
    images: list[str] | None = None
    """Pictures as Ollama has them, in base64; those above are addresses."""
    tool_calls: Annotated[list[SentCall], Form(_calls, list)] = attrs.Factory(list)
    function_call: Annotated[list[SentCall], Form(lambda value: _calls([value] if value else None), list)] = (
        attrs.Factory(list)
    )
    """As it was before there were tools."""
    tool_call_id: str | None = None

    @property
    def calls(self) -> list[SentCall]:
        return self.tool_calls + self.function_call

    @property
    def is_empty(self) -> bool:
        return not (self.content.strip() or self.pictures or self.images or self.calls or self.is_result)

    @property
    def is_result(self) -> bool:
        return self.role in ("tool", "function")

    @property
    def is_system(self) -> bool:
        return self.role in ("system", "developer")

    def files(self) -> tuple[bytes, ...]:
        """Its pictures. Raises BadValue: one is no data: URL, or there are too many."""
        addresses = [*self.pictures, *(f"data:;base64,{each}" for each in self.images or ())]
        if len(addresses) > MAX_FILES:
            raise BadValue((Problem("messages", f"must have at most {MAX_FILES} pictures each"),))
        return tuple(_bytes_of(each, "messages") for each in addresses)


@attrs.frozen(kw_only=True)
class SentText:
    """A message of the user or an answer, as it came."""

    role: Literal["user", "assistant"]
    content: str
    """Of an answer also what the client's tools did for it, told in words."""
    files: tuple[bytes, ...] = attrs.field(default=(), repr=False)
    said: str = ""
    """Of an answer with calls: its text alone."""
    calls: tuple[SentCall, ...] = ()
    is_open: bool = False
    """Of an answer: it ends with results of tools."""

    @cached_property
    def words(self) -> str:
        return one_line(self.content)

    @cached_property
    def digests(self) -> tuple[str, ...]:
        return tuple(hashlib.sha256(each).hexdigest() for each in self.files)


@attrs.frozen(kw_only=True)
class ClientTranscript:
    question: SentText
    history: tuple[SentText, ...]
    """What user and assistant said before."""
    rounds: tuple[ClientRound, ...]
    """What the client's tools did for the question already."""
    calls: tuple[SentCall, ...]
    """Those of the last round."""
    instructions: str
    is_side_question: bool
    """The program asks for itself: a title, tags. It is answered and never stored."""


def read_transcript(messages: Sequence[TranscriptMessage], *, store: bool = True) -> ClientTranscript:
    """Read what came; it may take so long that it should run in a thread. ``store``: whether the request is to be
    stored. Raises BadValue: neither a message of the user nor a tool's result is at its end; a call has no result, or a
    result no call; a picture is no data: URL."""
    kept = [each for each in messages if not each.is_empty]
    said = [each for each in kept if not each.is_system]
    by_system = bool(said) and said[-1].role == "assistant" and kept[-1].is_system
    if by_system:  # a program's task behind the conversation, such as a summary
        said.append(attrs.evolve(kept.pop(), role="user"))
    asked = max((place for place, each in enumerate(said) if each.role == "user"), default=None)
    if asked is None or said[-1].role == "assistant":
        raise BadValue((Problem("messages", "must end with a text of the user, or with results of tools"),))
    question, behind = said[asked], said[asked + 1 :]
    system = [each.content for each in kept if each.is_system]
    is_side = by_system or not store or is_side_question(question.content, system[0] if system else "")
    groups = list(_rounds(behind))
    return ClientTranscript(
        question=SentText(role="user", content=question.content, files=question.files()),
        history=tuple(_in_words(said[:asked])),
        rounds=tuple(_answered(text, calls) for text, calls in groups),
        calls=tuple(groups[-1][1]) if groups else (),
        instructions="\n\n".join(system),
        is_side_question=is_side or (bool(system) and len(system) > 1 and is_side_question(system[-1])),
    )


def _rounds(said: Sequence[TranscriptMessage], *, strict: bool = True) -> Iterator[tuple[str, list[SentCall]]]:
    """Texts with their calls; a result stands at its call. Raises BadValue, if ``strict``: it has none."""
    text, calls = "", list[SentCall]()
    for each in said:
        if not each.is_result:
            if calls:
                yield text, calls
                text, calls = "", []
            text, calls = "\n".join(filter(None, (text, each.content))), list(each.calls)
            continue
        fits = (
            place
            for place, call in enumerate(calls)
            if call.result is None and each.tool_call_id in (None, "", call.id or each.tool_call_id)
        )
        place = next(fits, None)
        if place is not None:
            calls[place] = attrs.evolve(calls[place], result=each.content)
        elif strict:
            raise BadValue((Problem("messages", "must have the call of each tool's result before it"),))
    if text or calls:
        yield text, calls


def _answered(text: str, calls: Sequence[SentCall]) -> ClientRound:
    if len(calls) > MAX_CALLS_EACH:
        raise BadValue((Problem("messages", f"must have at most {MAX_CALLS_EACH} calls of tools each"),))
    if missing := [call.id or call.name for call in calls if call.result is None]:
        raise BadValue((Problem("messages", f"must have a result of the call {missing[0]}"),))
    done = (
        ClientCall(id=call.id or f"call_{place}", name=call.name, arguments=call.arguments, result=call.result or "")
        for place, call in enumerate(calls)
    )
    return ClientRound(text=text, calls=tuple(done))


def _in_words(said: Sequence[TranscriptMessage]) -> Iterator[SentText]:
    """What was said; the rounds of an answer with client's tools and its end are one."""
    run: list[TranscriptMessage] = []
    for each in said:
        if each.role == "user":
            yield from _answers(run)
            yield SentText(role="user", content=each.content, files=each.files())
            run = []
        else:
            run.append(each)
            if not each.is_result and not each.calls:
                yield from _answers(run)
                run = []
    yield from _answers(run)


def _answers(run: Sequence[TranscriptMessage]) -> Iterator[SentText]:
    if not run:
        return
    if len(run) == 1 and not run[0].calls and not run[0].is_result:
        yield SentText(role="assistant", content=run[0].content, files=run[0].files())
        return
    told: list[str] = []
    for each in run:
        told += [f"[result: {each.content}]"] if each.is_result else filter(str.strip, [each.content])
        told += [call.in_words for call in each.calls]
    yield SentText(
        role="assistant",
        content=clean("\n".join(told)),
        said=" ".join(each.content for each in run if not each.is_result),
        calls=tuple(call for _, calls in _rounds(run, strict=False) for call in calls),
        is_open=run[-1].is_result,
    )
