"""espeak-ng speaks, pocketsphinx listens, and the chat answers what was asked, in both languages."""

import io
import subprocess
import wave

import pytest

from tests.e2e.test_http import http, klaw
from tests.support.listening import SENTENCES, listening, needs_listener
from tests.support.llm_server import echo_reply, serve_llm
from tests.support.server import served, write_home

pytestmark = needs_listener


def spoken(text, voice, loudness=100):
    how = ["-v", f"{voice}+f3", "-s", "130", "-a", str(loudness)]
    return subprocess.run(["espeak-ng", *how, "--stdout", text], capture_output=True, check=True).stdout


@pytest.mark.parametrize(("language", "voice"), [("en", "en-us"), ("ru", "ru")])
async def test_the_chat_answers_what_was_asked_aloud(tmp_path, language, voice):
    async with listening() as address, serve_llm() as llm:
        llm.respond = echo_reply
        providers = {"stub": {"baseUrl": llm.url, "maxRetries": 0}, "voice": {"baseUrl": address, "maxRetries": 0}}
        models = {"transcribe": "voice/pocketsphinx", "speak": "voice/espeak"}
        async with served(write_home(tmp_path, providers=providers, voice=models)) as server, http(server) as client:
            for sentence in SENTENCES[language]:
                sound = spoken(sentence, voice)
                file = (await client.post("/api/v1/files", params={"name": "voice.wav"}, content=sound)).json()["file"]
                heard = await client.post("/api/v1/voice/transcribe", json={"sha256": file["sha256"]})
                assert heard.json() == {"text": sentence}
                named = [{"sha256": file["sha256"], "name": file["name"]}]
                body = {"text": heard.json()["text"], "files": named, "transcribed": True}
                sent = (await client.post("/api/v1/chats/main/messages", json=body)).json()
                assert sent["answer"]["content"].startswith(f"echo: {sentence}")
                answer = {"chat": "main", "seq": sent["message"]["seq"] + 1}
                aloud = await client.post("/api/v1/voice/speak", json=answer)
                assert aloud.headers["content-type"] == "audio/wav"
                with wave.open(io.BytesIO(aloud.content)) as made:
                    assert made.getframerate() > 0
            broken = b"RIFF\x24\0\0\0WAVEfmt " + bytes(200)
            file = (await client.post("/api/v1/files", content=broken)).json()["file"]
            refused = await client.post("/api/v1/voice/transcribe", json={"sha256": file["sha256"]})
            assert (refused.status_code, refused.json()["code"]) == (424, "llm_refused")
            tested = await klaw("models", "test", "voice/pocketsphinx", "voice/espeak", home=server.home)
            assert "it listens" in tested
            assert "it speaks" in tested
