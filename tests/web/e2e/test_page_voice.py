"""Speaking to the page, in a real browser with a microphone that hears a file; answers that are read aloud."""

import base64
import io
import wave

import pytest

from tests.e2e.test_voice_heard import spoken
from tests.support.browser import in_browser, needs_chromium, wait_until
from tests.support.listening import SENTENCES, listening, needs_listener
from tests.support.llm_server import echo_reply, serve_llm, text_reply
from tests.support.server import served, write_home
from tests.support.services.voice import OGG, VoiceService, wav
from tests.web.e2e.test_page import base, begin_chat

pytestmark = needs_chromium

WORDS = {
    "en-US": ("New chat", "Speak", "transcribed", "More", "Read aloud"),
    "ru-RU": ("Новый чат", "Говорить", "записано со слуха", "Ещё", "Прочитать вслух"),
}
DROP = """([name, data]) => {
    const dataTransfer = new DataTransfer();
    dataTransfer.items.add(new File([Uint8Array.from(atob(data), (c) => c.charCodeAt(0))], name, {type: "audio/ogg"}));
    document.querySelector("textarea").dispatchEvent(
        new DragEvent("drop", {bubbles: true, cancelable: true, dataTransfer}));
}"""


def dropped(page, sound):
    page.evaluate(DROP, ["voice.oga", base64.b64encode(sound).decode()])


def recorded(page, button, seconds):
    page.click(f"button[aria-label='{button}']")
    wait_until(page, "(time) => document.querySelector('.microphone small')?.textContent >= time", f"00:0{seconds}")
    page.click(f"button[aria-label='{button}']")


def written(page, text):
    wait_until(page, "(text) => document.querySelector('textarea').value === text", text)


@pytest.mark.parametrize("locale", WORDS)
async def test_what_is_spoken_can_be_corrected_sent_and_heard_again(tmp_path, locale):
    new, speak, transcribed, more, aloud = WORDS[locale]
    (tmp_path / "voice.wav").write_bytes(wav(3, 900))

    def look(page, wrong):
        begin_chat(page, "голос", new)
        page.wait_for_selector(f"button[aria-label='{speak}']")
        recorded(page, speak, 1)
        written(page, "Какая столица Перу?")
        assert page.inner_text(".chip .reading") == transcribed
        assert ".webm" in page.inner_text(".chip .name")
        page.fill("textarea", "Какая столица Чили?")
        page.reload()  # what was heard waits like what was typed, and is not heard again
        page.wait_for_selector(f"button[aria-label='{speak}']")
        wait_until(page, "(word) => document.querySelector('.chip .reading').textContent === word", transcribed)
        page.focus("textarea")
        page.keyboard.press("Enter")
        page.wait_for_selector("article.assistant[data-seq]")
        for _ in range(2):
            assert transcribed in page.inner_text("article.user footer")
            assert page.locator("article.user audio").count() == 1
            page.reload()
            page.wait_for_selector("article.user audio")
        page.wait_for_selector(f"button[aria-label='{speak}']")
        page.click(f"article.assistant .menu > button[aria-label='{more}']")
        page.click(f"article.assistant .menu div button:text-is('{aloud}')")
        wait_until(page, "document.querySelector('audio.aloud')?.readyState > 1")
        assert wrong == []

    service = VoiceService(formats=("wav",))
    service.said = "Какая столица Перу?"
    async with serve_llm(service) as llm:
        service.answer = lambda _: text_reply("Сантьяго.")
        voice = {"transcribe": "stub/whisper-1", "speak": "stub/tts-1"}
        home = write_home(tmp_path / "home", llm=llm.url, voice=voice)
        async with served(home) as server:
            await in_browser(look, base(server), locale=locale, microphone=tmp_path / "voice.wav")
        (asked,) = llm.asked("/v1/audio/transcriptions")
        assert b"A_OPUS" in asked.raw
        assert llm.requests[-1].body["input"] == "Сантьяго."


@pytest.mark.parametrize(
    ("locale", "told"), [("en-US", "Browsers record over HTTPS only"), ("ru-RU", "Браузеры записывают звук")]
)
async def test_without_https_the_microphone_says_what_to_do_instead(tmp_path, locale, told):
    new, speak, *_ = WORDS[locale]

    def look(page, wrong):
        begin_chat(page, "plain", new)
        page.wait_for_selector(f"button[aria-label='{speak}']")
        page.evaluate("Object.defineProperty(navigator, 'mediaDevices', {value: undefined})")  # as over plain HTTP
        page.click(f"button[aria-label='{speak}']")
        page.wait_for_selector(f".toast:has-text('{told}')")
        assert wrong == []

    async with serve_llm(VoiceService()) as llm:
        home = write_home(tmp_path, llm=llm.url, voice={"transcribe": "stub/whisper-1"})
        async with served(home) as server:
            await in_browser(look, base(server), locale=locale)


async def test_a_dropped_sound_is_written_down_and_tried_again_after_an_error(tmp_path):
    service = VoiceService()
    service.replaced["/v1/audio/transcriptions"] = text_reply("not the promised form")

    def look(page, wrong):
        begin_chat(page, "drop", "New chat")
        page.fill("textarea", "Note:")
        page.wait_for_selector("button[aria-label='Speak']")
        dropped(page, OGG)
        page.wait_for_selector(".chip .reading button")
        assert "JSON" in page.inner_text(".chip .reading")
        service.replaced.clear()
        page.click(".chip .reading button")
        written(page, "Note: something")
        assert wrong == []

    async with serve_llm(service) as llm:
        home = write_home(tmp_path, llm=llm.url, voice={"transcribe": "stub/whisper-1"})
        async with served(home) as server:
            await in_browser(look, base(server), locale="en-US")


@pytest.mark.parametrize(
    ("locale", "said"), [("en-US", "Klaw cannot listen yet"), ("ru-RU", "Klaw пока не умеет слушать")]
)
async def test_without_a_model_the_chip_says_how_to_get_one(tmp_path, locale, said):
    new, speak, _, more, aloud = WORDS[locale]

    def look(page, wrong):
        begin_chat(page, "off", new)
        page.wait_for_selector("button.model:not([hidden])")
        dropped(page, OGG)
        page.wait_for_selector(".chip .reading")
        assert page.inner_text(".chip .reading").startswith(said)
        assert "voice.transcribe" in page.inner_text(".chip .reading")
        assert page.locator(f"button[aria-label='{speak}']").count() == 0
        page.focus("textarea")
        page.keyboard.press("Enter")
        page.click(f"article.assistant .menu > button[aria-label='{more}']")
        page.wait_for_selector("article.assistant .menu div button")
        assert page.locator(f"article.assistant .menu div button:text-is('{aloud}')").count() == 0
        assert wrong == []

    async with serve_llm() as llm, served(write_home(tmp_path, llm=llm.url)) as server:
        await in_browser(look, base(server), locale=locale)


def between_silence(sound):
    """What espeak-ng says, with half a second before and a second after it, and a head that knows its length."""
    with wave.open(io.BytesIO(sound)) as said:
        rate = said.getframerate()
    made = io.BytesIO()
    with wave.open(made, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(bytes(rate) + sound[44:] + bytes(2 * rate))
    return made.getvalue()


@needs_listener
@pytest.mark.parametrize(
    ("locale", "sentence", "voice"), [("en-US", SENTENCES["en"][1], "en-us"), ("ru-RU", SENTENCES["ru"][2], "ru")]
)
async def test_what_the_microphone_hears_is_answered(tmp_path, locale, sentence, voice):
    new, speak, _, more, aloud = WORDS[locale]
    (tmp_path / "voice.wav").write_bytes(between_silence(spoken(sentence, voice, loudness=25)))  # the browser amplifies

    def look(page, wrong):
        begin_chat(page, "speech", new)
        page.wait_for_selector(f"button[aria-label='{speak}']")
        recorded(page, speak, 4)
        written(page, sentence)
        page.focus("textarea")
        page.keyboard.press("Enter")
        page.wait_for_selector("article.assistant[data-seq]")
        assert f"echo: {sentence}" in page.inner_text("article.assistant")
        page.click(f"article.assistant .menu > button[aria-label='{more}']")
        page.click(f"article.assistant .menu div button:text-is('{aloud}')")
        wait_until(page, "document.querySelector('audio.aloud')?.readyState > 1")
        assert wrong == []

    async with listening() as address, serve_llm() as llm:
        llm.respond = echo_reply
        providers = {"stub": {"baseUrl": llm.url, "maxRetries": 0}, "voice": {"baseUrl": address, "maxRetries": 0}}
        models = {"transcribe": "voice/pocketsphinx", "speak": "voice/espeak"}
        home = write_home(tmp_path / "home", providers=providers, voice=models)
        async with served(home) as server:
            await in_browser(look, base(server), locale=locale, microphone=tmp_path / "voice.wav")
