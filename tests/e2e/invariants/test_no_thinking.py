"""no-thinking: what a model thinks is in no file, no log, no export and no later prompt, whatever form it came in.
Who watches sees it, and inside its own turn it goes back as the provider wants it."""

import json
import random
import re
from collections import deque

import pytest

from klaw.wire.frames import ThinkingFrame
from tests.support.llm_server import LlmServer, Raw, Reply, Text, event, serve_llm, text_reply
from tests.support.memory.endpoints import answer as endpoints
from tests.support.memory.endpoints import asked
from tests.support.server import run_klaw, served, write_home
from tests.support.services.thinking_anthropic import ThinkingAnthropic, call, redacted, text, thought
from tests.support.talking import talking

WORDS = ("lemon", "дача", "考える", "naïve", "<b>", "&amp;", '"quoted"', "\\n", "\n", "\t", "🤔", "it's", "100%")
TURNS = 7


class Thinker:
    """Makes up what is thought in one turn: random words around marks that nothing else has."""

    def __init__(self, rng):
        self.rng, self.turn, self.marks = rng, 0, {}

    def thinks(self):
        mark = f"думаю{self.rng.getrandbits(48):012x}"
        self.marks[mark] = self.turn
        words = self.rng.choices(WORDS, k=self.rng.randrange(2, 12))
        return " ".join([*words, mark, *self.rng.choices(WORDS, k=3), "so I know."])

    def pieces(self, whole):
        """The text in pieces of any length."""
        cuts = sorted(self.rng.sample(range(1, len(whole)), min(6, len(whole) - 1)))
        return [whole[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]

    def deltas(self, form):
        """What comes before an answer or a call, as one of the forms of providers."""
        pieces = self.pieces(self.thinks())
        match form:
            case "details":
                return [
                    {"reasoning": each, "reasoning_details": [{"type": "reasoning.text", "text": each, "index": 0}]}
                    for each in pieces
                ]
            case "tags":
                return [{"content": each} for each in self.pieces(f"<think>{''.join(pieces)}</think>")]
            case "unopened":
                return [{"content": each} for each in self.pieces(f"{''.join(pieces)}\n</think>\n\n")]
            case _:
                return [{form: each} for each in pieces]


def chunk(delta, finish=None):
    return Raw(event({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}))


def reply(deltas, number, *, calls):
    """An answer, or a call of a tool, behind what was thought."""
    end = {"tool_calls": [{"index": 0, "id": f"call{number}", "function": {"name": "current_time", "arguments": "{}"}}]}
    steps = [chunk(delta) for delta in deltas]
    steps += [chunk(end, "tool_calls")] if calls else [Text(f"Answer {number}.")]
    return Reply(steps=tuple(steps), finish_reason=None if calls else "stop")


FORMS = ("reasoning_content", "reasoning", "details", "thinking", "tags", "unopened")


@pytest.mark.parametrize("seed", [1, 2])
async def test_thinking_stays_in_its_turn(tmp_path, seed):
    rng = random.Random(seed)
    thinker, script = Thinker(rng), deque()

    def respond(request):
        if "messages" not in request.body:
            return endpoints(request)
        return script.popleft() if request.body.get("tools") else text_reply('{"summary": "They talked."}')

    claude = ThinkingAnthropic()
    async with serve_llm() as llm, serve_llm(claude):
        llm.respond = respond
        knows = {"tools": True, "thinking": "medium", "contextTokens": 60_000}
        stub = {"baseUrl": llm.url, "maxRetries": 0, "models": {"m": knows, "vec": {"inputPrice": 0, "outputPrice": 0}}}
        home = write_home(
            tmp_path / "home",
            routing={"default": "stub/m"},
            providers={
                "stub": stub,
                "claude": {"type": "anthropic", "baseUrl": claude.url, "maxRetries": 0, "models": {"old": knows}},
            },
            embedding={"enabled": True, "provider": "stub", "model": "vec", "sweepSeconds": 1},
            autoRag={"minMessageTokens": 1},
            summaries={"enabled": True},
            context={"slidingWindow": 4},
            logging={"format": "json", "level": "debug"},
        )
        async with served(home) as server, talking(server.url) as talk:
            await talk.send("/model claude/old", "signed")
            for number in range(TURNS):
                thinker.turn = number
                rounds = rng.randrange(0, 3)
                if number % 3 == 2:
                    claude.plans.extend(
                        [
                            thought(thinker.thinks()),
                            *([redacted("b3BhcXVl")] if rng.random() < 0.5 else []),
                            call(f"t{number}{round_}") if round_ < rounds else text(f"Answer {number}."),
                        ]
                        for round_ in range(rounds + 1)
                    )
                else:
                    form = FORMS[(number + seed) % len(FORMS)]
                    script.extend(
                        reply(thinker.deltas(form), number * 10 + round_, calls=round_ < rounds)
                        for round_ in range(rounds + 1)
                    )
                receipt = await talk.ask(f"Question {number}?", "signed" if number % 3 == 2 else "main")
                assert receipt.status == "done"
                assert receipt.receipt["thinking"]["tokens"] > 0
                assert f"Answer {number}" in await talk.answer_to(receipt)
            assert claude.refused == []
            seen = "".join(each.text for each in talk.events if isinstance(each, ThinkingFrame))
            assert [mark for mark in thinker.marks if mark not in seen] == []
            await server.status_when(lambda now: now["embedder"]["embedded"] >= 2 * TURNS)
            exported = []
            for command in (("chats", "export", "main"), ("chats", "export", "main", "--json"), ("export",)):
                folder = ("--to", str(tmp_path / "exported")) if command == ("export",) else ()
                code, out, error = await run_klaw(*command, *folder, "--home", str(home))
                assert code == 0, error
                exported.append(out)
            told = repr(await talk.history()) + repr(await talk.history("signed")) + "".join(exported)
            _no_mark(thinker, told.encode(), "an answer of the server")
        went_back = sum(_only_in_its_turn(thinker, each) for each in (llm, claude))
        assert went_back > 0
        assert asked(llm, "/embeddings")
        for each in asked(llm, "/embeddings"):
            _no_mark(thinker, json.dumps(each.body).encode(), "what is embedded")
        for path in (path for path in tmp_path.rglob("*") if path.is_file()):
            _no_mark(thinker, path.read_bytes(), str(path))


def _no_mark(thinker, data, where):
    assert [mark for mark in thinker.marks if _has(data, mark)] == [], where


def _has(data, mark):
    return mark.encode() in data or json.dumps(mark).strip('"').encode() in data or mark[5:].encode() in data


def _only_in_its_turn(thinker, server: LlmServer):
    """Returns how many requests have what was thought before a call of their turn."""
    went_back = 0
    for request in server.requests:
        if "messages" not in request.body:
            continue
        said = json.dumps(request.body, ensure_ascii=False)
        (number,) = re.findall(r"Question (\d+)\?", said)[-1:] or [None]
        there = {turn for mark, turn in thinker.marks.items() if mark in said}
        assert there <= ({int(number)} if request.body.get("tools") and number else set()), said
        went_back += bool(there)
    return went_back
