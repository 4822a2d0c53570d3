"""Listening and speaking, by models of providers: OpenAI's ``/audio/transcriptions`` and ``/audio/speech``, as
whisper.cpp, speaches, LocalAI and many services have them. What goes to them leaves Klaw."""

import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import httpx2
import trio

from klaw.actor.clock import iso
from klaw.config.llm import EndpointPath
from klaw.domain import tokens
from klaw.domain.attachment import CANNOT_LISTEN, HEAD_BYTES, OTHER, SOUNDS, sniff
from klaw.domain.names import LOCAL_USER, UserId
from klaw.domain.text import clean_output
from klaw.errors import VoiceError
from klaw.llm.client import Meter, note_spending
from klaw.llm.endpoint import ModelEndpoint
from klaw.llm.errors import ProviderError, ProviderMalformed, ProviderRefused
from klaw.llm.providers.dialect import count, parse
from klaw.llm.types import Usage

if TYPE_CHECKING:
    from klaw.llm.client import Llm

T = TypeVar("T")

WITHIN_S = 300.0
"""For one sound or text, with repetitions. A small machine listens about as long as somebody spoke."""
AT_ONCE, MOST_WAITING = 2, 6
MAX_SPOKEN = 4_000
"""Characters that are read aloud; OpenAI takes 4,096."""
BYTES_PER_TOKEN = 400
"""Of a sound, about: ten tokens for a second of a voice message."""
CANNOT_SPEAK = "Klaw cannot speak yet: it needs a model that reads aloud. Set voice.speak (docs/voice.md)."
_NO_SUCH_FORMAT = frozenset({400, 415, 422})


class Voice:
    """What Klaw hears and says. All methods raise VoiceError."""

    def __init__(self, llm: "Llm") -> None:
        self._llm, self._config = llm, llm.core.live(lambda now: now.voice)
        self._places = trio.CapacityLimiter(AT_ONCE)

    @property
    def hears(self) -> bool:
        return self._config.transcribe is not None

    @property
    def speaks(self) -> bool:
        return self._config.speak is not None

    async def transcribe(
        self, sound: bytes, name: str, media_type: str, *, language: str | None = None, user: UserId = LOCAL_USER
    ) -> str:
        """Write down what is said in a sound.

        Args:
            name, media_type: of the file; they count where its bytes do not tell what it is.
            language: what is spoken, ``ru`` or ``en-GB``; None: the model finds out.
            user: whom it is done for.

        Codes of VoiceError: ``no_voice`` (no model is set), ``not_a_sound``, ``sound_too_large``, ``nothing_heard``,
        ``busy``, and those of ProviderError.
        """
        endpoint = self._endpoint("audio/transcriptions", CANNOT_LISTEN)
        if len(sound) > (most := self._config.max_bytes):
            text = f"The sound is too long: at most {most:,} bytes are taken (voice.maxBytes)."
            raise VoiceError("sound_too_large", text)
        kind = sniff(sound[:HEAD_BYTES])
        if kind not in SOUNDS and (kind != OTHER or not media_type.startswith("audio/")):
            known = "Ogg, MP3, WAV, M4A, AAC, WebM and FLAC"
            raise VoiceError("not_a_sound", f"This is not a sound that Klaw knows. It takes {known}.")
        ending, told = SOUNDS.get(kind) or name.rpartition(".")[2], kind if kind in SOUNDS else media_type
        heard = await self._counted(user, lambda meter: listen(meter, endpoint, sound, ending, told, language))
        if not heard:
            raise VoiceError("nothing_heard", "Nothing was heard in the sound. Speak up, or closer to the microphone.")
        return heard

    async def speak(self, text: str, *, user: UserId = LOCAL_USER) -> tuple[bytes, str]:
        """Read a text in Markdown aloud, at most ``MAX_SPOKEN`` characters of its words. Returns the sound and its
        media type: Opus in Ogg, which messengers play as a voice message, if the model can."""
        from klaw.domain.spoken import spoken

        return await self.say(spoken(text, MAX_SPOKEN), user)

    async def say(self, text: str, user: UserId, **how: Any) -> tuple[bytes, str]:
        """Read a text aloud as it is. ``how``: members of the request, such as ``voice`` and ``response_format``."""
        endpoint = self._endpoint("audio/speech", CANNOT_SPEAK)
        if not text.strip():
            raise VoiceError("nothing_to_say", "There is nothing to read aloud in this text.")
        how = {"voice": self._config.voice, **how}
        return await self._counted(user, lambda meter: say(meter, endpoint, text, how))

    def _endpoint(self, path: EndpointPath, why: str) -> ModelEndpoint:
        named = self._llm.core.config.endpoints.get(path)
        if named is None:
            raise VoiceError("no_voice", why)
        return self._llm.router.endpoint(*named, path)

    async def _counted(self, user: UserId, ask: Callable[[Meter], Awaitable[T]]) -> T:
        if self._places.statistics().tasks_waiting >= MOST_WAITING:  # each holds its sound
            raise VoiceError("busy", "Klaw has many sounds to listen to, or to make. Try again a little later.")
        meter, core = self._llm.meter(), self._llm.core
        async with self._places:
            try:
                return await ask(meter)
            except ProviderError as error:
                raise VoiceError(error.code, error.told()) from None
            finally:
                noted = meter.record(), core.writer, iso(core.clock.now()), "voice", user
                await note_spending(*noted)  # noqa: ASYNC102  it shields


async def listen(
    meter: Meter, endpoint: ModelEndpoint, sound: bytes, ending: str, media_type: str, language: str | None = None
) -> str:
    """What a model hears in a sound; may be empty. Raises ProviderError."""
    members = {"model": endpoint.model, "response_format": "json"}
    spoken_in = (language or "").partition("-")[0].lower()
    if re.fullmatch(r"[a-z]{2,3}", spoken_in):
        members["language"] = spoken_in
    form = httpx2.Request("POST", "http://form", data=members, files={"file": (f"sound.{ending}", sound, media_type)})
    headers = {"content-type": form.headers["content-type"]}
    ask = partial(endpoint.exchange, form.read(), _read_text, WITHIN_S, **headers)
    return await meter.counted(endpoint.name, ask, len(sound) // BYTES_PER_TOKEN)


async def say(meter: Meter, endpoint: ModelEndpoint, text: str, how: Mapping[str, Any]) -> tuple[bytes, str]:
    """A text as sound, and its media type. Raises ProviderError."""
    members = {"model": endpoint.model, "input": text, **how}
    wants_opus = "response_format" not in how

    async def ask() -> tuple[tuple[bytes, str], None]:
        exchange = partial(endpoint.exchange, read=_read_sound, within_s=WITHIN_S, accept="audio/*, */*")
        try:
            return await exchange({**members, "response_format": "opus"} if wants_opus else members), None
        except ProviderRefused as error:
            if error.status not in _NO_SUCH_FORMAT or not wants_opus:
                raise
            return await exchange(members), None

    return await meter.counted(endpoint.name, ask, tokens.estimate(text))


def _read_text(body: bytes, _media_type: str) -> tuple[str, Usage | None]:
    answer = parse(body.decode("utf-8", "replace"))
    text = answer.get("text") if isinstance(answer, dict) else None
    if not isinstance(answer, dict) or not isinstance(text, str):
        raise ProviderMalformed("the LLM provider's answer has no text; is its baseUrl right?")
    told = answer.get("usage")
    used = [count(told.get(name)) for name in ("input_tokens", "output_tokens")] if isinstance(told, dict) else [None]
    usage = None if None in used else Usage(prompt_tokens=used[0] or 0, completion_tokens=used[1] or 0)
    return clean_output(text).strip(), usage


def _read_sound(body: bytes, media_type: str) -> tuple[bytes, str]:
    kind = sniff(body[:HEAD_BYTES])
    if kind not in SOUNDS and not media_type.startswith("audio/"):
        raise ProviderMalformed("the LLM provider sent no sound; is its baseUrl right?")
    return body, kind if kind in SOUNDS else media_type
