"""Exports of ChatGPT: ``conversations.json``, or ``conversations-000.json`` and so on. A conversation is a tree of
nodes: an edited question, or an answer that was made again, is a branch. Its user sees the way from the root to
``current_node``; the rest was replaced."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import attrs

from klaw.domain.message import Role
from klaw.imports import events
from klaw.imports.export_files import ExportEntry, OpenedExport
from klaw.imports.json_stream import chats, way

_MARK = re.compile(
    r"( ?)(\ue200[^\ue200\ue201]*\ue201|【[^【】\n]{1,200}】|:contentReference\[oaicite:\d+\](?:\{index=\d+\})?"
    r"|(?:file)?cite(?:turn\d{1,4}[a-z]{1,20}\d{1,4})+)"
)
_NAMED = re.compile(r"\[oai_citation[:_]\d{1,4}‡")
_REST = re.compile(r" ?\ue200\w{0,20}(?:\ue202[^\s\ue200-\ue20f]*)*|[\ue200-\ue20f]")
_REFERENCE = re.compile(r"(?:turn\d+\w+[,;\s]*)+")
_WRITING = re.compile(r"^:::(?:writing\{[^}\n]*\})?[ \t]*(?:\n|\Z)", re.MULTILINE)


def unmarked(text: str, references: Any = None) -> str:
    """A text as its user sees it: without the marks for ChatGPT's own page, each of which its ``content_references``
    name with what is shown for it."""
    listed = [each for each in references if isinstance(each, dict)] if isinstance(references, list) else []
    shown = {str(each.get("matched_text")): each["alt"] for each in listed if isinstance(each.get("alt"), str)}
    text = _REST.sub("", _MARK.sub(lambda found: _placed(found[1], found[2], shown), text))
    text = _NAMED.sub("[", text)
    return _WRITING.sub("", text) if ":::writing{" in text else text


def _placed(space: str, mark: str, shown: Mapping[str, str]) -> str:
    words = shown.get(mark)
    if not words and mark[0] == "\ue200":
        words = " ".join(filter(None, _words(mark[1:-1])))
    elif words is None and mark[0] == "【" and not re.search(r"†|turn\d", mark):  # so some languages quote
        words = mark
    return f"{space}{words}" if words else ""


def _words(mark: str) -> Iterator[str]:
    """The words that a mark carries: a name, a heading, the text of a link."""
    kind, *arguments = mark.split("\ue202")
    for each in map(str.strip, arguments if "cite" not in kind else ()):
        if each.startswith(("[", "{")):
            try:
                values = json.loads(each)
            except (ValueError, RecursionError):
                continue
            if isinstance(values, list) and len(values) > 1 and all(isinstance(value, str) for value in values):
                yield values[1]  # an entity: its kind, its name, what tells it from others
            elif isinstance(values, dict):  # a widget, such as of a formula
                inner = [
                    value["content"] for value in values.values() if isinstance(value, dict) and "content" in value
                ]
                yield from (value for value in inner if isinstance(value, str))
        elif not _REFERENCE.fullmatch(each):
            yield each


SOURCE = "chatgpt"
FILES = r"conversations(?:[-_ ]?\d+)?\.json"
_FILE_ID = re.compile(r"file[-_][0-9A-Za-z]+")
_SAID = {"user": Role.USER, "assistant": Role.ASSISTANT}
_MADE = frozenset(
    {
        *("thoughts", "reasoning_recap", "execution_output", "system_error", "model_editable_context"),
        *("user_editable_context", "tether_quote", "tether_browsing_display", "sonic_webpage", "computer_output"),
        "app_pairing_content",
    }
)


def read(export: OpenedExport) -> Iterator[events.Event]:
    stored: dict[str, ExportEntry] = {}
    for file in export.files(r"[^/]*file[-_][^/]*") if export.has_several else ():
        if (own := _FILE_ID.search(file.name.rpartition("/")[2])) is not None:
            stored.setdefault(own[0], file)
    return chats(export, FILES, "conversations.json", partial(_chat, stored), frozenset({"mapping"}))


def _chat(stored: Mapping[str, ExportEntry], found: Any, place: str) -> Iterator[events.Event]:
    try:
        key, title, mapping = found.get("conversation_id") or found.get("id"), found.get("title"), found["mapping"]
        nodes = [(name, mapping[name]["message"]) for name in _way(mapping, found.get("current_node"))]
        times = (found.get("create_time"), found.get("update_time"), *(each.get("create_time") for _, each in nodes))
        at = next(filter(None, map(events.moment, times)), None)
    except events.OTHER_FORM as error:
        yield events.Unread(place, f"is not a ChatGPT conversation ({type(error).__name__})")
        return
    if not isinstance(key, str) or not key:
        yield events.Unread(place, "has no id")
        return
    yield events.ExportedChat(key=key, title=str(title or ""))
    reports: set[str] = set()
    for name, message in nodes:
        try:
            made = _message(name, message, at)
            if isinstance(made, events.ExportedMessage):
                made = attrs.evolve(made, files=_files(message, stored))
        except events.OTHER_FORM as error:
            made = events.other_form(f"{place}, message {name}", error)
        if isinstance(made, events.ExportedMessage):
            at = made.at
            if message["author"]["role"] == "tool":  # a widget is stored again each time that it changes
                if made.text in reports:
                    continue
                reports.add(made.text)
        if made is not None:
            yield made
    shown = {name for name, _ in nodes}
    yield from (
        events.LeftOut(events.REPLACED) for name, node in mapping.items() if name not in shown and _is_said(node)
    )


def _is_said(node: Any) -> bool:
    try:
        return isinstance(_message("", node["message"], "2020"), events.ExportedMessage)
    except events.OTHER_FORM:
        return False


def _way(mapping: Any, current: Any) -> list[str]:
    """The messages that the user saw. Who follows whom is in ``parent``, in ``children``, or in both; else the order of
    the export counts."""
    parents: dict[str, str | None] = {}
    made: dict[str, float] = {}
    named = {child: name for name, node in mapping.items() for child in node.get("children") or ()}
    last = None
    for name, node in mapping.items():
        parents[name] = (node.get("parent") or named.get(name)) if named or "parent" in node else last
        at = (node.get("message") or {}).get("create_time")
        made[name] = at if isinstance(at, (int, float)) else 0.0
        last = name
    return [name for name in way(parents, made, current) if mapping[name].get("message")]


def _message(name: str, message: Any, before: str | None) -> events.Event | None:
    role = message["author"]["role"]
    about, content = message.get("metadata") or {}, message["content"]
    at = events.moment(message.get("create_time")) or before
    recipient = str(message.get("recipient") or "all")
    is_made = role == "tool" or recipient.startswith("canmore.")
    if not is_made and (about.get("is_visually_hidden_from_conversation") or about.get("is_user_system_message")):
        return events.LeftOut("hidden")
    if role == "tool":
        text = _report(about, content)
    elif role == "assistant" and recipient.startswith("canmore."):
        text = _canvas(content)
    elif role not in _SAID or content["content_type"] in _MADE or recipient != "all":
        text = ""
    else:
        text = _said(about, content, by_user=_SAID[role] is Role.USER)
        if not text:
            return None
    if not text:
        return events.LeftOut(events.MADE_BY_TOOLS)
    if not at:
        return events.Unread(f"message {name}", "has no time")
    return events.ExportedMessage(key=name, role=_SAID.get(role, Role.ASSISTANT), text=text, at=at)


def _said(about: Any, content: Any, *, by_user: bool = False) -> str:
    """The text of a message; what people wrote themselves stays as it is."""
    files = {each.get("id"): each.get("name") for each in about.get("attachments") or ()}
    shown = content.get("parts") or ([content["text"]] if content.get("text") else [])
    texts = [_text(part, files) for part in shown if part is not None]
    marked = about.get("targeted_reply")  # what the user marked to ask about it
    references = about.get("content_references")  # marks in what a user wrote were pasted from an answer
    texts = [unmarked(each, references) if not by_user or "\ue200" in each else each for each in texts]
    if by_user and isinstance(marked, str) and marked.strip():
        texts.insert(0, "\n".join(f"> {line}" for line in unmarked(marked).splitlines()))
    named = [f"[file: {name}]" for name in files.values() if name and not any(f": {name}]" in text for text in texts)]
    return "\n".join(each for each in (*texts, *named) if each.strip())


def _report(about: Any, content: Any) -> str:
    """A report or a picture that a tool made for the user; empty for anything else."""
    if about.get("is_async_task_result_message"):
        return _said(about, content)
    sdk = about.get("chatgpt_sdk")
    state = sdk.get("widget_state") if isinstance(sdk, dict) else None
    try:
        state = json.loads(state, strict=False) if isinstance(state, str) else state
    except (ValueError, RecursionError):
        state = None
    report = state.get("report_message") if isinstance(state, dict) else None
    if isinstance(report, dict) and isinstance(report.get("content"), dict):
        return _said(report.get("metadata") or {}, report["content"])
    parts = [each for each in content.get("parts") or () if isinstance(each, dict)]
    made = [(each, each["metadata"]) for each in parts if isinstance(each.get("metadata"), dict)]
    return "\n".join(_text(each, {}) for each, by in made if by.get("dalle") or by.get("generation"))


def _canvas(content: Any) -> str:
    """The document that a call of the canvas makes or changes, or its notes on it."""
    given = content.get("text") or "".join(each for each in content.get("parts") or () if isinstance(each, str))
    try:
        call = json.loads(given, strict=False)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    if not isinstance(call, dict):
        return ""
    if isinstance(call.get("content"), str):
        named = f": {call['name']}" if call.get("name") else ""
        return f"[document{named}]\n{call['content']}"
    changes = [str(each["replacement"]) for each in call.get("updates") or () if each.get("replacement")]
    notes = [str(each["comment"]) for each in call.get("comments") or () if each.get("comment")]
    return "\n".join([*(f"[document, changed]\n{each}" for each in changes), *(f"[note]\n{each}" for each in notes)])


def _files(message: Any, stored: Mapping[str, ExportEntry]) -> tuple[events.ExportedFile, ...]:
    listed = (message.get("metadata") or {}).get("attachments") or ()
    named = {str(each.get("id")): str(each.get("name") or "") for each in listed}
    parts = [each for each in message["content"].get("parts") or () if isinstance(each, dict)]
    for pointer in (str(each.get("asset_pointer") or "").rpartition("/")[2] for each in parts):
        named.setdefault(pointer, "")
    found = {own: stored[own] for own in named if own in stored}
    return tuple(attrs.evolve(file.attached(), name=named[own] or file.attached().name) for own, file in found.items())


def _text(part: Any, files: dict[Any, Any]) -> str:
    """Pictures and recordings are named."""
    if isinstance(part, str):
        return part
    kind, pointer = str(part.get("content_type")), str(part.get("asset_pointer") or "").rpartition("/")[2]
    if kind == "audio_transcription" or isinstance(part.get("text"), str):
        return str(part.get("text") or "")
    if "image" in kind:
        return f"[image: {files.get(pointer) or pointer}]"
    return f"[file: {files.get(pointer) or pointer}]" if pointer and "audio" not in kind else ""
