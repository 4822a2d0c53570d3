"""Listening and speaking against a real server, with a service that checks every field of what it is sent."""

import json
from contextlib import asynccontextmanager

import pytest
from openai import AsyncOpenAI, AuthenticationError, BadRequestError, ConflictError

from klaw.client.client import messages_of
from klaw.client.connection import connect
from klaw.errors import RequestRefused
from tests.e2e.test_http import http, klaw, token_for, until_served
from tests.support.llm_server import error_reply, serve_llm, text_reply
from tests.support.server import served, write_home
from tests.support.services.voice import OGG, VoiceService, read_form, wav
from tests.support.waiting import until

KEY = "sk-of-the-voice"
VOICE = {"transcribe": "stub/whisper-1", "speak": "stub/tts-1"}
OFF = "Klaw cannot listen yet"


@asynccontextmanager
async def world(tmp_path, service=None, voice=VOICE, **sections):
    async with serve_llm(service or VoiceService(key=KEY)) as llm:
        provider = {"baseUrl": llm.url, "apiKey": KEY, "maxRetries": 0, "timeoutSeconds": 20}
        home = write_home(tmp_path, llm=llm.url, providers={"stub": provider}, voice=voice or {}, **sections)
        async with served(home) as server:
            yield server, llm


async def uploaded(client, sound, name="voice.ogg"):
    kept = await client.post("/api/v1/files", params={"name": name}, content=sound)
    return kept.json()


async def transcribed(client, sha256, **more):
    return await client.post("/api/v1/voice/transcribe", json={"sha256": sha256, **more})


async def test_what_was_said_is_written_down_and_goes_with_its_sound(tmp_path):
    async with world(tmp_path) as (server, llm):
        llm.heard[OGG] = " Какая столица Перу? \n"
        async with http(server) as client:
            kept = await uploaded(client, OGG, "голос.oga")
            assert kept["reading"] == "What is said in it can be written down."
            file = kept["file"]
            assert file["type"] == "audio/ogg"
            told = await transcribed(client, file["sha256"], language="ru-RU")
            assert (told.status_code, told.json()) == (200, {"text": "Какая столица Перу?"})
            fields, sound = read_form(llm.asked("/v1/audio/transcriptions")[0])
            assert fields == {"model": "whisper-1", "response_format": "json", "language": "ru"}
            assert sound == ("sound.ogg", "audio/ogg", OGG)
            assert llm.requests[0].headers["authorization"] == f"Bearer {KEY}"
            llm.answers.append(text_reply("Лима."))
            named = [{"sha256": file["sha256"], "name": file["name"]}]
            body = {"text": "Какая столица Перу?", "files": named, "transcribed": True}
            sent = (await client.post("/api/v1/chats/main/messages", json=body)).json()
            assert sent["message"]["transcribed"] is True
            assert sent["answer"]["content"] == "Лима."
            (asked,) = [each for each in llm.requests[-1].body["messages"] if each["role"] == "user"]
            assert "[sound голос.oga: spoken; the text above is what a speech model heard in it]" in asked["content"]
            markdown = (await client.get("/api/v1/chats/main/export", params={"format": "markdown"})).json()["text"]
            assert "(transcribed)" in markdown
            exported = (await client.get("/api/v1/chats/main/export", params={"format": "json"})).json()["text"]
            assert json.loads(exported)["messages"][0]["metadata"]["transcribed"] is True
            body = {"what": "main#1", "dry_run": False}
            assert (await client.post("/api/v1/forget", json=body)).json()["forgotten"]
            assert (await client.get(f"/api/v1/files/{file['sha256']}")).status_code == 404
        assert "столица" not in server.stderr
        assert KEY not in server.stderr


async def test_it_is_asked_over_the_websocket_too(tmp_path):
    async with world(tmp_path) as (server, llm), connect(server.url) as client:
        llm.heard[sound := wav()] = "The garden gate is green."
        file = await client.upload("a.wav", sound)
        told = await client.call("voice_transcribe", sha256=file.sha256)
        assert told == {"text": "The garden gate is green."}
        with pytest.raises(RequestRefused) as refused:
            await client.call("voice_transcribe", sha256="0" * 64)
        assert refused.value.code == "unknown_file"
        models = await client.call("chats_models", chat="main")
        assert (models["hears"], models["speaks"]) == (True, True)
        assert [each["name"] for each in models["models"]] == ["stub/echo"]
        await client.send("main", told["text"], "m1", [file])
        page = messages_of(await client.call("chats_messages", chat="main"))
        assert page.messages[0].transcribed is None


async def test_another_user_has_no_part_in_it(tmp_path):
    async with world(tmp_path) as (server, llm):
        _, hers = token_for(server, "anna")
        _, his = token_for(server, "boris")
        async with http(server, hers) as anna, http(server, his) as boris:
            file = (await uploaded(anna, OGG))["file"]
            assert (await transcribed(boris, file["sha256"])).json()["code"] == "unknown_file"
            body = {"chat": "main", "seq": 1}
            assert (await boris.post("/api/v1/voice/speak", json=body)).json()["code"] == "unknown_message"
            assert (await transcribed(anna, file["sha256"])).json() == {"text": "something"}
        assert len(llm.asked("/v1/audio/transcriptions")) == 1


async def test_without_a_model_it_is_said_how_to_get_one_which_counts_at_once(tmp_path):
    async with world(tmp_path, voice=None) as (server, llm), http(server) as client:
        kept = await uploaded(client, OGG)
        assert kept["reading"].startswith(OFF)
        told = await transcribed(client, kept["file"]["sha256"])
        assert (told.status_code, told.json()["code"]) == (409, "no_voice")
        assert told.json()["detail"].startswith(OFF)
        assert "voice.transcribe" in told.json()["detail"]
        silent = await client.post("/api/v1/voice/speak", json={"text": "Hello"})
        assert "voice.speak" in silent.json()["detail"]
        await klaw("config", "set", "voice.transcribe", "stub/whisper-1", home=server.home)

        async def hears():
            return (await transcribed(client, kept["file"]["sha256"])).status_code == 200

        await until(hears)
        assert (await client.get("/api/v1/chats/main/models")).json()["hears"] is True
        assert llm.asked("/v1/audio/transcriptions")


@pytest.mark.parametrize(
    ("reply", "code", "said"),
    [
        (error_reply(401, "invalid_api_key", "Incorrect API key provided"), "llm_refused", "providers.stub.apiKey"),
        (error_reply(500, "server_error", "out of order"), "llm_refused", "out of order"),
        (error_reply(404, "model_not_found", "no such model"), "llm_refused", "providers.stub.baseUrl"),
        (text_reply("hello"), "llm_malformed", "not JSON"),
    ],
)
async def test_what_the_service_says_is_told_with_what_to_do(tmp_path, reply, code, said):
    service = VoiceService(key=KEY)
    service.replaced["/v1/audio/transcriptions"] = reply
    async with world(tmp_path, service) as (server, _), http(server) as client:
        kept = await uploaded(client, OGG)
        told = await transcribed(client, kept["file"]["sha256"])
        assert told.status_code == 424
        assert (told.json()["code"], said in told.json()["detail"]) == (code, True), told.text
        (check,) = (await client.post("/api/v1/models/test", json={"model": "stub/whisper-1"})).json()["checks"]
        assert (check["name"], check["state"]) == ("audio/transcriptions", "fails")
        assert said in check["text"]


async def test_what_cannot_be_written_down_is_refused_before_it_is_sent(tmp_path):
    async with world(tmp_path, voice={**VOICE, "maxBytes": 3_000}) as (server, llm), http(server) as client:
        for content, code, status in (
            (wav(1), "sound_too_large", 413),
            (b"only a text", "not_a_sound", 409),
            (b"%PDF-1.7", "not_a_sound", 409),
        ):
            kept = await uploaded(client, content)
            told = await transcribed(client, kept["file"]["sha256"])
            assert (told.status_code, told.json()["code"]) == (status, code)
        assert not llm.asked("/v1/audio/transcriptions")
        llm.heard[OGG] = " \n"
        kept = await uploaded(client, OGG)
        assert (await transcribed(client, kept["file"]["sha256"])).json()["code"] == "nothing_heard"
        _, root = token_for(server, "root", operator=True)
        async with http(server, root) as operator:
            await until_served(operator)
            found = {each["name"]: each["text"] for each in (await operator.get("/api/v1/doctor")).json()["findings"]}
        assert found["listening"].startswith("stub/whisper-1, to which what people say is sent")
        assert "stub/tts-1" in found["speaking"]


async def test_an_answer_is_read_aloud(tmp_path):
    async with world(tmp_path) as (server, llm), http(server) as client:
        # Also to the trial calls of the start, which may come late.
        llm.answer = lambda _: text_reply("# Лима\n\nСтолица **Перу** — [Лима](https://example.org).")
        await client.post("/api/v1/chats/main/messages", json={"text": "Столица Перу?"})
        spoken = await client.post("/api/v1/voice/speak", json={"chat": "main", "seq": 2})
        assert spoken.headers["content-type"] == "audio/ogg"
        assert spoken.content.startswith(b"OggS")
        assert spoken.content.endswith("Лима. Столица Перу — Лима.".encode())
        asked = llm.requests[-1].body
        assert (asked["voice"], asked["response_format"]) == ("alloy", "opus")
        for body, code in (
            ({"chat": "main", "seq": 9}, "unknown_message"),
            ({}, "nothing_to_say"),
            ({"text": "***"}, "nothing_to_say"),
            ({"text": "x", "loud": True}, "bad_args"),
        ):
            assert (await client.post("/api/v1/voice/speak", json=body)).json()["code"] == code, body


async def test_a_service_without_opus_speaks_as_it_can(tmp_path):
    service = VoiceService(key=KEY, formats=("mp3",))
    async with world(tmp_path, service) as (server, llm), http(server) as client:
        spoken = await client.post("/api/v1/voice/speak", json={"text": "Hello. " * 2_000})
        assert spoken.headers["content-type"] == "audio/mpeg"
        assert [each.body.get("response_format") for each in llm.asked("/v1/audio/speech")] == ["opus", None]
        said = llm.requests[-1].body["input"]
        assert len(said) <= 4_000
        assert said.endswith("Hello.")
        tested = await klaw("models", "test", "stub/tts-1", home=server.home)
        assert "it speaks" in tested


async def test_openais_own_client_listens_and_speaks(tmp_path):
    async with world(tmp_path) as (server, llm):
        llm.heard[sound := wav()] = "Hello there."
        _, secret = token_for(server, "anna")
        base = server.url.replace("ws://", "http://").removesuffix("/ws")
        async with AsyncOpenAI(base_url=f"{base}/v1", api_key=secret, max_retries=0) as client:

            async def known():
                try:
                    return await client.models.list()
                except AuthenticationError:  # the token file is read a moment later
                    return None

            await until(known)
            given = {"model": "whisper-1", "file": ("a.wav", sound)}
            assert (await client.audio.transcriptions.create(**given, language="en")).text == "Hello there."
            assert await client.audio.transcriptions.create(**given, response_format="text") == "Hello there."
            with pytest.raises(BadRequestError, match="must be json or text"):
                await client.audio.transcriptions.create(**given, response_format="srt")
            with pytest.raises(ConflictError, match="not a sound"):
                await client.audio.transcriptions.create(model="whisper-1", file=("a.wav", b"text"))
            spoken = await client.audio.speech.create(model="tts-1", voice="nova", input="*Hi*", response_format="mp3")
            assert spoken.content == b"ID3\x04\0*Hi*"
            assert llm.requests[-1].body["voice"] == "nova"


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "multipart/form-data; boundary=x"),
        (b"{}", "application/json"),
        (b"--x\r\nnonsense", "multipart/form-data; boundary=x"),
        (
            b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n--x--\r\n',
            "multipart/form-data; boundary=x",
        ),
        (
            b'--x\r\nContent-Disposition: form-data; name="file"\r\n\r\nm\r\n--x--\r\n',
            "multipart/form-data; boundary=x",
        ),
        (b"--x--", "multipart/form-data"),
    ],
)
async def test_a_bad_form_is_refused(voice_server, body, kind):
    async with http(voice_server) as client:
        told = await client.post("/v1/audio/transcriptions", content=body, headers={"Content-Type": kind})
        assert told.status_code == 400
        assert told.json()["error"]["type"] == "invalid_request_error"


@pytest.fixture
async def voice_server(tmp_path):
    async with world(tmp_path) as (server, _):
        yield server


async def test_what_it_costs_is_counted_where_the_price_is_known(tmp_path):
    priced = {"whisper-1": {"inputPrice": 6, "outputPrice": 10}}
    service = VoiceService()
    service.usage = {"type": "tokens", "input_tokens": 1_000, "output_tokens": 100, "total_tokens": 1_100}
    async with serve_llm(service) as llm:
        provider = {"baseUrl": llm.url, "maxRetries": 0, "models": priced}
        home = write_home(tmp_path, providers={"stub": provider}, voice=VOICE)
        file = home / "config" / "engine.yaml"
        file.write_text(json.dumps({**json.loads(file.read_text()), "llm": {"dailyBudget": 0.007}}))
        async with served(home) as server, http(server) as client:
            kept = await uploaded(client, OGG)
            sha256 = kept["file"]["sha256"]
            assert (await transcribed(client, sha256)).status_code == 200
            used = (await client.get("/api/v1/usage", params={"by": "source"})).json()
            (spent,) = [each for each in used["groups"] if each["key"] == "voice"]
            assert spent["cost_usd"] == pytest.approx(0.007)
            await server.kill()  # the day's spending is known after a restart too
            await server.start()
            async with http(server) as again:
                refused = await transcribed(again, sha256)
            assert (refused.status_code, refused.json()["code"]) == (424, "llm_over_budget")
