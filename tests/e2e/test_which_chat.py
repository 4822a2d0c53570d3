"""Random conversations of many clients, which resend all that was said: each request's prompt holds exactly what its
own conversation has, whatever others said, edited, asked again or had titled.

A seed says who does what and in which order, except where all of them ask at once.
"""

import json
import random
import re
from contextlib import AsyncExitStack

import attrs
import pytest
import trio

from tests.e2e.test_http import http, token_for, until_served
from tests.support.llm_server import Recorded, Reply, Tool, error_reply, serve_llm, text_reply, tool_reply
from tests.support.server import served, write_home

SEEDS, CLIENTS, STEPS = range(3), 9, 60
OPENINGS = ("Hello", "Привет", "What is new?")
ALIKE = ("ok", "Да.\n\nЧто ещё? ")
"""What several conversations have in common; all other texts have a number of their own."""
TITLE = "### Task:\nGenerate a concise, 3-5 word title with an emoji summarizing the chat history."
WEATHER = {"name": "weather", "parameters": {"type": "object", "properties": {"day": {"type": "integer"}}}}
TOOLS = [{"type": "function", "function": WEATHER}]
REQUEST = re.compile(r"This is request (\d+)\.")
OPENAI, OLLAMA = "/v1/chat/completions", "/api/chat"
KINDS = (
    lambda _: {},
    lambda _: {"door": OLLAMA},
    lambda number: {"headers": {"X-OpenWebUI-Chat-Id": f"web-{number}"}},
    lambda _: {},
    lambda number: {"headers": {"X-Klaw-Chat": f"all-{number}"}},
    lambda number: {"headers": {"X-Klaw-Chat": f"last-{number}"}, "resends": False},
)


@attrs.define
class Conversation:
    """As the program on the other side has it."""

    door: str = OPENAI
    headers: dict = attrs.Factory(dict)
    resends: bool = True
    """Else it sends the new message only."""
    said: list = attrs.Factory(list)

    @property
    def questions(self):
        return [number for number, each in enumerate(self.said) if each["role"] == "user"]

    @property
    def names_its_chat(self):
        """So that a question alone is a new one there."""
        return "X-Klaw-Chat" in self.headers


class Model:
    """What it answers to each request, and what it was sent; requests are known by the number in their system text."""

    def __init__(self):
        self.answers, self.requests, self.last = {}, {}, 0

    def number(self):
        self.last += 1
        return self.last

    def respond(self, request: Recorded) -> Reply:
        (number,) = REQUEST.findall(str(request.messages))  # of nobody else's
        self.requests.setdefault(int(number), []).append(request)
        return self.answers[int(number)]


class Talk:
    """Conversations that take turns, by chance."""

    def __init__(self, client, model, seed, conversations):
        self.client, self.model, self.conversations = client, model, conversations
        self.chance = random.Random(seed)

    def text(self, kind, alike):
        if alike and self.chance.random() < 0.4:
            return self.chance.choice(alike)
        return f"{kind} {self.model.number()}.\n\n  And more.  "

    def question(self, at):
        """A new one; of who sends nothing else, the same text again is the same question."""
        alike = () if not at.resends else ALIKE if at.said else OPENINGS
        return {"role": "user", "content": self.text("Question", alike)}

    async def ask(self, at, said, reply):
        """What came back for the end of ``said``; the model was asked once, and what it was told is ``said``."""
        number = self.model.number()
        self.model.answers[number] = reply
        system = {"role": "system", "content": f"This is request {number}."}
        question = max(place for place, each in enumerate(said) if each["role"] == "user")
        messages = [system, *(said if at.resends else said[question:])]
        body = {"model": "klaw", "stream": False, "messages": messages, "tools": TOOLS}
        found = await self.client.post(at.door, json=body, headers=at.headers)
        (request,) = self.model.requests.pop(number)
        assert told(request.messages) == told(said), (at.door, at.headers)
        return found

    async def say(self, at, said):
        fails = self.chance.random() < 0.07
        found = await self.ask(at, said, error_reply(403) if fails else text_reply(self.text("Answer", ALIKE)))
        assert found.status_code == (424 if fails else 200), found.text
        at.said = list(said)
        if not fails:
            at.said.append({"role": "assistant", "content": message_of(found)["content"].strip()})

    # -- what programs do --------------------------------------------------------------------------------------------

    async def goes_on(self, at):
        await self.say(at, [*at.said, self.question(at)])

    async def edits_a_question(self, at):
        questions = at.questions[1:] if at.names_its_chat else at.questions
        await self.say(at, [*at.said[: self.chance.choice(questions or [len(at.said)])], self.question(at)])

    async def asks_again(self, at):
        is_result = at.said[-1]["role"] == "tool"  # of a tool; the answer failed
        await self.say(at, at.said if is_result else at.said[: at.questions[-1] + 1])

    async def uses_its_tools(self, at):
        said = [*at.said, self.question(at)]
        for _ in range(self.chance.choice([1, 1, 2])):
            days = [self.model.number() for _ in range(self.chance.choice([1, 2]))]
            calls = (Tool(f"c{day}", "weather", f'{{"day": {day}}}') for day in days)
            said.append(message_of(await self.ask(at, said, tool_reply(*calls))))
            for call in said[-1]["tool_calls"]:
                result = {"role": "tool", "content": self.text("Result", ALIKE)}
                # Ollama's API has no ids: results stand in the order of their calls.
                of_call = {"tool_call_id": call["id"]} if at.door == OPENAI else {"tool_name": "weather"}
                said.append({**result, **of_call})
        await self.say(at, said)

    async def rewrites_an_answer(self, at):
        answers = [number for number, each in enumerate(at.said) if each["role"] == "assistant"]
        answers = [number for number in answers if not at.said[number].get("tool_calls")]
        for number in self.chance.choices(answers) if answers else ():
            at.said[number] = {"role": "assistant", "content": f"Rewritten {self.model.number()}"}
        await self.goes_on(at)

    async def is_copied(self, at):
        """Another program goes on from a part of it."""
        other = self.chance.choice([each for each in self.conversations if not each.names_its_chat] or [at])
        if other is not at:
            other.said = at.said[: self.chance.choice([0, *at.questions])]
        await self.goes_on(other)

    async def wants_a_title(self, at):
        found = await self.ask(at, [*at.said, {"role": "user", "content": TITLE}], text_reply("A title"))
        assert (found.status_code, "x-klaw-chat" in found.headers) == (200, False)

    async def step(self):
        at = self.chance.choice(self.conversations)
        acts = [self.goes_on] * 4 + [self.uses_its_tools] * 2
        if at.said and at.resends:
            acts += [self.edits_a_question] * 2
            acts += [self.asks_again, self.rewrites_an_answer, self.is_copied, self.wants_a_title]
        await self.chance.choice(acts)(at)


def message_of(found):
    tree = found.json()
    return tree["message"] if "message" in tree else tree["choices"][0]["message"]


def told(messages):
    """Who said what, without system texts and white space; what one of them said at a stretch is one. Rounds of tools
    are told in the words that Klaw has for those of which it holds nothing else."""
    found = []
    for each in messages:
        role = "user" if each["role"] == "user" else "assistant"
        text = f"[result: {each['content']}]" if each["role"] == "tool" else each["content"] or ""
        for call in each.get("tool_calls") or ():
            name, given = call["function"]["name"], call["function"]["arguments"]
            function = {"name": name, "arguments": given if isinstance(given, str) else json.dumps(given)}
            text += f" [called {json.dumps(function)}]"
        if each["role"] == "system":
            continue
        if not found or found[-1][0] != role:
            found.append((role, []))
        found[-1][1].extend(text.split())
    return [(role, " ".join(words)) for role, words in found]


@pytest.fixture
async def talks(tmp_path):
    """A talk for each seed, all of other users. Nothing is recalled from other chats."""
    model = Model()
    async with AsyncExitStack() as stack:
        llm = await stack.enter_async_context(serve_llm())
        llm.respond = model.respond
        stub = {"baseUrl": llm.url, "maxRetries": 0, "models": {"echo": {"tools": True, "contextTokens": 100_000}}}
        home = write_home(tmp_path, providers={"stub": stub}, autoRag={"enabled": False})
        server = await stack.enter_async_context(served(home))
        found = []
        for seed in SEEDS:
            client = await stack.enter_async_context(http(server, token_for(server, f"user{seed}")[1]))
            await until_served(client)
            made = [Conversation(**KINDS[number % len(KINDS)](number)) for number in range(CLIENTS)]
            found.append(Talk(client, model, seed, made))
        yield found


async def test_each_prompt_holds_its_own_conversation_and_nothing_else(talks):
    for talk in talks:
        for _ in range(STEPS):
            await talk.step()


async def test_conversations_that_ask_at_once_stay_apart(talks):
    async def alone(talk, number):
        one = Talk(talk.client, talk.model, f"{talk.chance.random()} {number}", [talk.conversations[number]])
        for _ in range(STEPS // CLIENTS):
            await one.step()

    async with trio.open_nursery() as nursery:
        for talk in talks:
            for number in range(CLIENTS):
                nursery.start_soon(alone, talk, number)
