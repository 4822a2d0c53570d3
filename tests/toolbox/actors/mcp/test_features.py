"""What MCP servers have besides tools, with the SDK's own server, in the protocol of 2026 and in the one before."""

from functools import partial
from types import SimpleNamespace

import pytest
import trio

from klaw.domain.usage import UsageSum
from klaw.errors import McpError
from klaw.llm.types import Completion
from klaw.toolbox.mcp import session
from tests.support.programs.mcp_client import Person, program, running, yes_sayer
from tests.support.waiting import until

FEATURES = {**program(), "args": ["-m", "tests.support.programs.mcp_features"]}


class Model:
    """A double of the LLM client: it answers "red"."""

    budget = SimpleNamespace(today=lambda: "2026-11-26")

    def __init__(self):
        self.asked = []
        self.slots = SimpleNamespace(slot=lambda _priority: trio.open_nursery())

    async def route(self, _name):
        return SimpleNamespace(model="m", name="stub/m")

    def meter(self):
        return self

    async def stream(self, _route, request, _on_delta):
        self.asked.append(request)
        return Completion(text="red", model="stub/m")

    spent = UsageSum(prompt_tokens=10, completion_tokens=2)

    def record(self):
        return {}


@pytest.fixture(params=["2025-11-25", "2026-07-28"])
def protocol(request, monkeypatch):
    if request.param < "2026":
        monkeypatch.setattr(session, "Client", partial(session.Client, mode="legacy"))
    return request.param


async def test_everything_that_a_server_has(protocol, tmp_path):
    person, model = Person(), Model()
    host = yes_sayer(tmp_path, person, model)
    config = {**FEATURES, "roots": ["/srv"], "sampling": True, "samplingTokens": 100}
    async with running({"f": config}, host=host) as here:
        server = here.servers["f"]
        assert server.report().protocol == protocol
        keys = {kind: [each.key for each in found] for kind, found in server.entries.items()}
        assert keys["resources"] == ["notes://harbour", "notes://pixel"]
        assert (keys["resourceTemplates"], keys["prompts"]) == (["notes://day/{day}"], ["greeting"])
        assert (await server.read("notes://day/one")).text == "The day one"
        assert (await server.read("notes://pixel")).pictures[0].media_type == "image/png"
        assert (await server.prompt("greeting", {"name": "Anna"})).text == "Write a warm greeting for Anna."
        with pytest.raises(McpError, match="it refuses"):
            await server.read("notes://nothing")

        person.answers = {"Which journey": "city: Paris; nights: 3; seat: aisle"}
        told = (await here.call("f__book")).text
        assert told == "accept: {'city': 'Paris', 'nights': 3, 'seat': 'aisle', 'email': None}"
        person.answers = {"nights does not keep": False, "Which journey": "city: Paris; nights: 30"}
        assert "decline" in (await here.call("f__book")).text.lower()
        assert (await here.call("f__roots")).text == "file:///srv"

        assert (await here.call("f__write", tokens=20)).text == "stub/m: red"
        assert [each.content for each in model.asked[0].messages] == ["Be short.", "Name a colour."]
        assert "system: Be short. | user: Name a colour." in person.asked[-1]
        assert "did not answer" in (await here.call("f__write", tokens=95)).text  # of the 100 of a day 12 are used
        person.answers = {"to write": False}
        assert "did not agree" in (await here.call("f__write", tokens=20)).text

        assert (await here.call("f__work")).text == "worked"
        await until(lambda: server.report().logged)
        assert (server.report().logged, server.report().said) == ({"warning": 1}, "the index [31m is old")
        assert (await here.call("f__weather")).text.split() == ["{", '"degrees":', "5,", '"sky":', '"grey"', "}"]
        assert "does not fit its own schema: $.degrees" in (await here.call("f__weather", odd=True)).text
        assert (await here.call("f__learn")).text == "learnt"
        if protocol > "2026":
            await until(lambda: len(server.entries["prompts"]) == 2 and len(server.entries["resources"]) == 3)


async def test_pages_that_the_user_has_to_open(tmp_path, monkeypatch):
    monkeypatch.setattr(session, "Client", partial(session.Client, mode="legacy"))
    person = Person()
    async with running({"f": FEATURES}, host=yes_sayer(tmp_path, person)) as here:
        assert (await here.call("f__visit")).text == "accept"
        assert "https://pay.example/agree (on pay.example): Agree there" in person.asked[-1]
        assert "Call the tool again" in (await here.call("f__must_visit")).text
        person.answers = {"to open": False}
        assert (await here.call("f__visit")).text == "decline"
        assert "did not agree" in (await here.call("f__must_visit")).text


async def test_where_nobody_can_be_asked_nothing_is(tmp_path):
    """Without a host, as with a run without a chat, a server is told that it cannot ask."""
    async with running({"f": FEATURES}) as here:
        assert (await here.call("f__book")).failed
