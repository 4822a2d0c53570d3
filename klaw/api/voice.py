"""Reading answers aloud over HTTP, and both of OpenAI's addresses for sound."""

from collections.abc import AsyncGenerator
from functools import partial
from typing import Annotated, Literal

import attrs
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from klaw.api.openapi import PREFIX, About, DescribedRoute
from klaw.api.request_auth import Api
from klaw.api.streams import while_connected
from klaw.convert import FRAMES, REQUESTS, Bounds
from klaw.domain.attachment import SOUNDS
from klaw.errors import BadValue, HttpRefusal, Problem
from klaw.llm.voice import MAX_SPOKEN
from klaw.operations.operation import ChatName, OperationError, chat_of

FORM_BYTES = 65_536
"""Of a form beside its sound."""


@attrs.frozen(kw_only=True)
class TextToSpeak:
    """A text in Markdown, or a message of a chat."""

    text: str = ""
    chat: ChatName | None = None
    seq: Annotated[int, Bounds(1)] | None = None


@attrs.frozen(kw_only=True)
class OpenAISpeech:
    input: Annotated[str, Bounds(1, MAX_SPOKEN)]
    voice: Annotated[str, Bounds(1, 100)] | None = None
    response_format: Literal["mp3", "opus", "aac", "flac", "wav", "pcm"] = "mp3"
    speed: Annotated[float, Bounds(0.25, 4)] | None = None


def routes(api: Api) -> list[Route]:
    voice = api.parts.voice

    async def speak(request: Request) -> Response:
        user = api.caller(request).user
        asked = await api.json(request, partial(REQUESTS.read, cls=TextToSpeak))
        text = asked.text
        if asked.chat is not None and asked.seq is not None:
            found = await api.services.chats.after(chat_of(asked.chat, user), asked.seq - 1, 1)
            if not found or found[0].seq != asked.seq:
                raise OperationError("unknown_message", "there is no such message", field="seq")
            text = found[0].content
        sound, kind = await while_connected(request.receive, partial(voice.speak, text, user=user))
        return Response(sound, media_type=kind)

    async def transcriptions(request: Request) -> Response:
        user = api.grant(request).user
        sound, name, kind, given = await _read_form(api, request)
        form = given.get("response_format", "json")
        if form not in ("json", "text"):
            raise BadValue([Problem("response_format", "must be json or text")])
        heard = partial(voice.transcribe, sound, name, kind, language=given.get("language"), user=user)
        text = await while_connected(request.receive, heard)
        return PlainTextResponse(text) if form == "text" else JSONResponse({"text": text})

    async def speech(request: Request) -> Response:
        user = api.grant(request).user
        asked = await api.json(request, partial(FRAMES.read, cls=OpenAISpeech))
        how = attrs.asdict(asked, filter=lambda field, value: field.name != "input" and value is not None)
        sound, kind = await while_connected(request.receive, partial(voice.say, asked.input, user, **how))
        return Response(sound, media_type=kind)

    help_text = "Read a text, or a message of a chat, aloud. The answer is the sound."
    about = About("voice_speak", help_text, "voice", body=TextToSpeak, gives=(*SOUNDS,))
    return [
        DescribedRoute(f"{PREFIX}/voice/speak", speak, "POST", about),
        Route("/v1/audio/transcriptions", transcriptions, methods=["POST"]),
        Route("/v1/audio/speech", speech, methods=["POST"]),
    ]


async def _read_form(api: Api, request: Request) -> tuple[bytes, str, str, dict[str, str]]:
    """The sound of a form, its name and type, and the other fields. Raises HttpRefusal, BadValue."""
    body = await api.body(request, api.core.config.voice.max_bytes + FORM_BYTES)

    async def whole() -> AsyncGenerator[bytes, None]:  # noqa: ASYNC900  nothing is open in it
        yield body

    parser = MultiPartParser(request.headers, whole(), max_files=1, max_fields=20, max_part_size=FORM_BYTES)
    parser.spool_max_size = len(body) + 1  # a voice never lies on the disk
    try:
        form = await parser.parse()
    except (MultiPartException, KeyError):
        raise HttpRefusal(400, "the body is a form (multipart/form-data) with the sound as file") from None
    file = form.get("file")
    if file is None or isinstance(file, str):
        raise BadValue([Problem("file", "is required: the sound")])
    given = {name: value for name, value in form.items() if isinstance(value, str)}
    return await file.read(), file.filename or "", file.content_type or "", given
