"""Open WebUI, which ``make test-open-webui`` installs, in a browser, with Klaw as its model."""

import base64
import os
from contextlib import asynccontextmanager
from functools import partial

import httpx2
import pytest
import trio

from tests.support.browser import in_browser, needs_chromium
from tests.support.client_programs import model
from tests.support.client_programs.table import klaw_with_model
from tests.support.llm_server import text_reply
from tests.support.server import clean_environ, free_port
from tests.support.waiting import until

PLACE = os.environ.get("KLAW_TEST_OPEN_WEBUI", "")
TITLE = "A parrot called Kiwi"
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAEUlEQVR4nGP4z8CAFWEXHbQSACj/P8Fu7N9hAAAAAElFTkSuQmCC"
)


@asynccontextmanager
async def open_webui(folder, api):
    """Its address."""
    base = f"http://127.0.0.1:{free_port()}"
    own = {"DATA_DIR": str(folder), "WEBUI_AUTH": "False", "HF_HUB_OFFLINE": "1", "OFFLINE_MODE": "true"}
    klaw = {"OPENAI_API_BASE_URL": api, "OPENAI_API_KEY": "none", "ENABLE_FORWARD_USER_INFO_HEADERS": "true"}
    rag = {"RAG_EMBEDDING_ENGINE": "openai", "RAG_OPENAI_API_BASE_URL": api, "ENABLE_OLLAMA_API": "false"}
    command = [f"{PLACE}/bin/open-webui", "serve", "--host", "127.0.0.1", "--port", base.rpartition(":")[2]]
    environ = {**clean_environ(), **own, **klaw, **rag}
    run = partial(trio.run_process, command, cwd=folder, env=environ, check=False, capture_stdout=True)
    async with trio.open_nursery() as nursery, httpx2.AsyncClient(base_url=base, trust_env=False) as http:
        nursery.start_soon(partial(run, capture_stderr=True))

        async def is_up():
            try:
                return (await http.get("/health")).status_code == 200
            except httpx2.TransportError:
                return False

        await until(is_up, every_s=0.5)
        yield base
        nursery.cancel_scope.cancel(reason="the test is over")


def respond(request):
    wants_a_title = "Generate a concise" in request.last_user
    return text_reply(f'{{"title": "{TITLE}"}}') if wants_a_title else model.respond(request)


def use(page, _wrong, picture):
    """A chat, a second question, its answer again, a picture. Returns the id of the chat."""

    def say(text, answer, count=1):
        page.locator("#chat-input").click()
        page.keyboard.type(text)
        page.keyboard.press("Enter")
        page.get_by_text(answer).nth(count - 1).wait_for()
        page.get_by_role("button", name="Regenerate").nth(-1).wait_for()

    page.get_by_text("Okay, Let's Go!").click()
    say("My parrot is called Kiwi", "echo: My parrot is called Kiwi")
    page.get_by_text(TITLE).first.wait_for()
    say("RECALL", "My parrot is called Kiwi | RECALL")
    page.get_by_role("button", name="Regenerate").last.click()
    page.get_by_text("Try Again").click()
    page.get_by_text("2/2").wait_for()
    page.get_by_text("My parrot is called Kiwi | RECALL").first.wait_for()
    page.locator("input[type=file]").first.set_input_files(picture)
    page.locator("#chat-input").click()
    say("IMAGES", "PICTURES: 1")
    say("SAY goodbye", "goodbye", 2)
    return page.url.rpartition("/")[2]


@needs_chromium
@pytest.mark.skipif(not PLACE, reason="KLAW_TEST_OPEN_WEBUI names no environment with it (make test-open-webui)")
async def test_a_chat_in_open_webui(tmp_path):
    async with klaw_with_model(tmp_path / "klaw") as (server, llm):
        llm.respond = respond
        url = server.url.replace("ws://", "http://").removesuffix("/ws")
        (tmp_path / "data").mkdir()
        picture = {"name": "picture.png", "mimeType": "image/png", "buffer": PNG}
        async with open_webui(tmp_path / "data", f"{url}/v1") as base:
            chat = await in_browser(partial(use, picture=picture), base, locale="en-US")
        async with httpx2.AsyncClient(base_url=url, trust_env=False) as http:
            assert [each["name"] for each in (await http.get("/api/v1/chats")).json()["chats"]] == [chat]
            held = (await http.get(f"/api/v1/chats/{chat}/messages")).json()["messages"]
    said = [each["content"].splitlines()[-1] for each in held if each["role"] == "user"]
    assert said == ["My parrot is called Kiwi", "RECALL", "IMAGES", "SAY goodbye"]
    assert [(each["variant"]["number"], each["variant"]["count"]) for each in held if "variant" in each] == [(2, 2)]
    assert len(held) == 8, "no title, tags or follow-ups are stored"
    asked = [each.last_user for each in llm.requests if each.last_user.startswith("### Task:")]
    assert asked, "a title was asked for"
