"""What a server answers, as text for models and people, with its pictures. Pure."""

import base64
import binascii
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from klaw.domain.attachment import HEAD_BYTES, MAX_PICTURE_BYTES, PICTURES, sniff
from klaw.llm.types import Image
from klaw.toolbox.mcp.listing import MAX_BLOCKS, fitted, parameters_of
from klaw.toolbox.spec import PicturedText, ToolFailure

MAX_PICTURES = 4
MAX_SHORT = 300
MAX_CHECKED = 262_144
NO_TEXT = "It answered without any text."


def text_of(result: Mapping[str, Any], schema: Any = None) -> str | PicturedText | ToolFailure:
    """The result of ``tools/call`` as text, with its pictures. ``schema``: what its structured content must fit."""
    content = fitted(result).get("content")
    blocks = content if isinstance(content, list) else []
    pictures: list[Image] = []
    parts = list(_parts(blocks, pictures))
    structured = result.get("structuredContent")
    if schema is not None and not result.get("isError") and (wrong := misfit(structured, schema)):
        return ToolFailure(f"The tool may have had its effect, but its result does not fit its own schema: {wrong}.")
    # Servers repeat structured content as text, for clients that know only that.
    if structured is not None and not any(block.get("type") == "text" for block in blocks if isinstance(block, dict)):
        try:
            parts.append(json.dumps(structured, ensure_ascii=False, allow_nan=False))
        except (TypeError, ValueError, RecursionError):
            parts.append("[structured content that cannot be shown]")
    text = "\n".join(part for part in parts if part)
    if result.get("isError"):
        return ToolFailure(text or "The tool failed and did not say why.")
    return PicturedText(text=text, pictures=tuple(pictures)) if pictures else text or NO_TEXT


def texts_of(contents: list[Any]) -> PicturedText:
    """What ``resources/read`` brings, or the messages of ``prompts/get``."""
    pictures: list[Image] = []
    parts: list[str] = []
    for each in contents[:MAX_BLOCKS]:
        if isinstance(each, dict) and "role" in each:
            parts += _parts([each.get("content")], pictures)
        elif isinstance(each, dict) and isinstance(each.get("text"), str):
            parts.append(each["text"])
        else:
            parts.append(_resource(each, pictures))
    return PicturedText(text="\n\n".join(parts), pictures=tuple(pictures))


def misfit(value: Any, schema: Any) -> str:
    """Where a value does not fit a schema; empty if it does, or is too large to be looked at. The schema is first made
    harmless: its patterns are never tried."""
    if value is None:
        return "there is none"
    if len(json.dumps(value)) > MAX_CHECKED:
        return ""
    harmless = parameters_of(schema)
    back = {original: shown for shown, original in harmless.original.items()}
    if isinstance(value, dict):
        value = {back.get(name, name): each for name, each in value.items()}
    return first_misfit(value, harmless.schema)


def first_misfit(value: Any, schema: Mapping[str, Any]) -> str:
    """Where a value does not fit a harmless schema; empty if it does."""
    from jsonschema import Draft202012Validator, FormatChecker

    found = Draft202012Validator(schema, format_checker=FormatChecker(("email", "date"))).iter_errors(value)
    error = next(found, None)
    return "" if error is None else f"{error.json_path} does not keep to its {error.validator}"


def _parts(blocks: list[Any], pictures: list[Image]) -> Iterator[str]:
    for block in blocks:
        if not isinstance(block, dict):
            continue
        match block.get("type"):
            case "text":
                yield str(block.get("text", ""))
            case "image" if _taken(block.get("data"), pictures):
                yield f"[picture {len(pictures)}, {pictures[-1].media_type}, {_bytes(block.get('data'))}]"
            case "image" | "audio" as kind:
                yield f"[{kind}, {_short(block.get('mimeType'))}, {_bytes(block.get('data'))}: cannot be shown]"
            case "resource_link":
                named = [_short(block[key]) for key in ("name", "uri", "description") if block.get(key)]
                yield f"[link: {', '.join(named)}]"
            case "resource":
                yield _resource(block.get("resource"), pictures)
            case other:
                yield f"[content of type {_short(other)}: cannot be shown]"


def _taken(data: object, pictures: list[Image]) -> bool:
    if not isinstance(data, str) or len(pictures) >= MAX_PICTURES or len(data) * 3 // 4 > MAX_PICTURE_BYTES:
        return False
    with suppress(binascii.Error, ValueError):
        file = base64.b64decode(data, validate=True)
        if (kind := sniff(file[:HEAD_BYTES])) in PICTURES:
            pictures.append(Image(data=file, media_type=kind))  # type: ignore[arg-type]  # one of them
            return True
    return False


def _resource(resource: object, pictures: list[Image]) -> str:
    if not isinstance(resource, dict):
        return ""
    where = _short(resource.get("uri"))
    if isinstance(resource.get("text"), str):
        return f"[{where}]\n{resource['text']}"
    if _taken(resource.get("blob"), pictures):
        return f"[picture {len(pictures)}: {where}, {pictures[-1].media_type}, {_bytes(resource.get('blob'))}]"
    return f"[{where}, {_short(resource.get('mimeType') or 'binary')}, {_bytes(resource.get('blob'))}: cannot be shown]"


def _bytes(data: object) -> str:
    size = len(data) * 3 // 4 if isinstance(data, str) else 0
    return f"{size} bytes" if size < 1024 else f"{size / 1024:.0f} KiB"


def _short(value: object) -> str:
    return " ".join(str(value or "?")[:MAX_SHORT].split())
