"""The executor: whatever a call or a tool does, the model gets a text and nobody an exception."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import attrs
import pytest
import trio
import trio.testing

from klaw.actor.clock import new_id
from klaw.actor.threads import Threads
from klaw.convert import Bounds
from klaw.domain.names import LOCAL_USER, UserId, chat_id
from klaw.errors import StorageError
from klaw.llm.types import ToolCall
from klaw.toolbox.executor import MAX_FILE_BYTES, MAX_FILES, CallResult, Executor, Overflow, prepare
from klaw.toolbox.spec import Permission, Toolbox, ToolContext, ToolFailure, ToolSpec, tool
from tests.conftest import CANARY
from tests.support.waiting import HANG_S

CONTEXT = ToolContext(user=LOCAL_USER, chat=chat_id(LOCAL_USER, "main"), turn="t1")


def making(function: Callable[..., Any], **changes: Any) -> ToolSpec:
    spec = tool(permission=changes.pop("permission", Permission.READ))(function)
    return attrs.evolve(spec, **changes)


def executor(*specs: ToolSpec, **changes: Any) -> Executor:
    toolbox = Toolbox()
    toolbox.register(*specs)
    return Executor(toolbox=toolbox, **changes)


async def run(own: Executor, *calls: ToolCall, **options: Any) -> tuple[CallResult, ...]:
    prepared = prepare(calls, taken=(), new_id=new_id, most=32)
    return await own.run(prepared, CONTEXT, **options)


async def one(own: Executor, name: str, **arguments: Any) -> CallResult:
    (result,) = await run(own, ToolCall(id="c1", name=name, arguments=json.dumps(arguments)))
    return result


@tool(permission=Permission.READ)
async def echo(context: ToolContext, text: Annotated[str, "what"] = "") -> str:
    """Say it again."""
    return f"{context.call}: {text}"


async def test_calls_of_a_round_run_at_once_and_keep_their_order() -> None:
    met = trio.Event()
    arrived: list[str] = []

    async def meet(context: ToolContext) -> str:
        """Wait for the other."""
        arrived.append(context.call)
        if len(arrived) == 2:
            met.set()
        await met.wait()
        return context.call

    calls = [ToolCall(id=f"c{n}", name=name, arguments="{}") for n, name in enumerate(["meet", "echo", "meet"])]
    ended: list[str] = []

    async def on_result(result: CallResult) -> None:
        ended.append(result.call.id)

    with trio.fail_after(HANG_S):
        results = await run(executor(making(meet), echo), *calls, on_result=on_result)
    assert [result.call.id for result in results] == ["c0", "c1", "c2"]
    assert [result.text for result in results] == ["c0", "c1: ", "c2"]
    assert sorted(ended) == ["c0", "c1", "c2"]


async def test_a_tool_that_hangs_is_stopped_at_its_deadline(autojump_clock: trio.testing.MockClock) -> None:
    async def hang(_context: ToolContext) -> str:
        """Hang."""
        await trio.sleep_forever()
        return ""

    own = executor(making(hang, timeout_s=7), making(hang, name="hang_60"), echo)
    calls = [ToolCall(id=name, name=name, arguments="{}") for name in ("hang", "hang_60", "echo")]
    results = await run(own, *calls)
    assert [result.failed for result in results] == [True, True, False]
    assert "did not finish within 7 s" in results[0].text
    assert "within 60 s" in results[1].text
    assert trio.current_time() == pytest.approx(60)


@pytest.mark.parametrize(
    "error",
    [
        ValueError(CANARY),
        RecursionError(),
        MemoryError(),
        SystemExit(3),
        StopAsyncIteration(),
        ExceptionGroup("many", [KeyError("a"), OSError()]),
        trio.TooSlowError(),
    ],
)
async def test_a_tool_that_raises(error: BaseException) -> None:
    async def fail(_context: ToolContext) -> str:
        """Fail."""
        raise error

    result = await one(executor(making(fail)), "fail")
    assert result.failed
    assert "fail failed with" in result.text
    assert CANARY not in result.text


async def test_klaws_own_errors_are_told() -> None:
    async def fail(_context: ToolContext) -> str:
        """Fail."""
        raise StorageError("the index is damaged")

    assert "fail failed: the index is damaged." in (await one(executor(making(fail)), "fail")).text


@pytest.mark.parametrize("value", [float("nan"), {"a": [float("inf")]}, object(), {1, 2}, b"x", {("a",): 1}])
async def test_a_tool_that_returns_no_json(value: object) -> None:
    async def odd(_context: ToolContext) -> object:
        """Return something odd."""
        return value

    result = await one(executor(making(odd)), "odd")
    assert result.failed
    assert "cannot be shown" in result.text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("", "(no output)"),
        (None, "null"),
        ({"имя": "Анна"}, '{"имя": "Анна"}'),
        ("a\r\nb\x1b[31mred\x1b[0m\x00\ud800\x07", "a\nbred\ufffd\ufffd"),
    ],
)
async def test_outputs_are_text_without_control_characters(value: object, text: str) -> None:
    async def say(_context: ToolContext) -> object:
        """Say."""
        return value

    result = await one(executor(making(say)), "say")
    assert (result.text, result.failed) == (text, False)


async def test_a_flood_is_cut_and_kept_in_a_file(tmp_path: Path) -> None:
    async def flood(_context: ToolContext, count: int) -> str:
        """Flood."""
        return "вода " * count

    def kept_in(result: CallResult) -> Path:
        return tmp_path / result.text.partition(" in the file ")[2].partition(" of the workspace")[0]

    files = Overflow(Threads("files", 1), tmp_path, new_id)
    own = executor(making(flood), max_output_chars=1000, overflow=files)
    result = await one(own, "flood", count=1000)
    assert result.text.startswith("вода ")
    assert "first 1000 of 5000 characters" in result.text
    assert kept_in(result).read_text() == "вода " * 1000
    result = await one(own, "flood", count=1_000_000)
    assert "The first 1 MB of it is in the file" in result.text
    kept = kept_in(result).read_bytes()
    assert MAX_FILE_BYTES - 2 < len(kept) <= MAX_FILE_BYTES
    kept.decode()
    folder = tmp_path / "tool-output"
    for number in range(MAX_FILES + 5):
        (folder / f"old{number}.txt").write_text("x")
    await one(own, "flood", count=1000)
    assert len(list(folder.iterdir())) == MAX_FILES


async def test_a_flood_that_cannot_be_kept_is_cut(tmp_path: Path) -> None:
    async def flood(_context: ToolContext) -> str:
        """Flood."""
        return "x" * 5000

    (tmp_path / "tool-output").write_text("a file where the folder should be")
    files = Overflow(Threads("files", 1), tmp_path, new_id)
    result = await one(executor(making(flood), max_output_chars=1000, overflow=files), "flood")
    assert "The rest was not kept" in result.text
    (tmp_path / "tool-output").unlink()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "tool-output").symlink_to(tmp_path / "elsewhere")
    result = await one(executor(making(flood), max_output_chars=1000, overflow=files), "flood")
    assert "The rest was not kept" in result.text
    assert not list((tmp_path / "elsewhere").iterdir())


async def test_unknown_forbidden_and_broken_calls_say_what_to_do() -> None:
    own = executor(echo, attrs.evolve(_write(), when=lambda context: context.run is not None))
    texts = {
        result.call.id: result.text
        for result in await run(
            own,
            ToolCall(id="a", name="ehco", arguments="{}"),
            ToolCall(id="b", name="write", arguments="{}"),
            ToolCall(id="c", name="echo", arguments='{"txt": 1}'),
            ToolCall(id="d", name="echo", arguments="{text: 1}"),
            ToolCall(id="e", name="echo", arguments='{"text": 5}'),
        )
    }
    assert texts["a"] == "There is no tool ehco here. There are: echo."
    assert texts["b"] == "There is no tool write here. There are: echo."
    assert texts["c"] == "echo was not run: unknown field; known are text; did you mean text?"
    assert "not JSON" in texts["d"]
    assert texts["e"] == "echo was not run: text: must be a text."


def _write() -> ToolSpec:
    @tool(permission=Permission.WRITE)
    async def write(_context: ToolContext) -> str:
        """Write."""
        return "written"

    return write


async def test_approval_is_asked_for_and_refused_without_anybody(autojump_clock: trio.testing.MockClock) -> None:
    async def shell(_context: ToolContext) -> str:
        """Run a program."""
        return "ran"

    spec = making(shell, permission=Permission.APPROVAL)
    assert "nobody can permit it here" in (await one(executor(spec), "shell")).text

    async def after_an_hour(_context: ToolContext, _spec: ToolSpec, _arguments: Any) -> str | None:
        await trio.sleep(3600)  # does not count against the tool's deadline
        return None

    async def no(_context: ToolContext, _spec: ToolSpec, _arguments: Any) -> str | None:
        return "The user said no."

    assert (await one(executor(spec, approve=after_an_hour), "shell")).text == "ran"
    assert (await one(executor(spec, approve=no), "shell")).failed


async def test_a_tool_failure_is_a_failed_result() -> None:
    async def refuse(_context: ToolContext) -> ToolFailure:
        """Refuse."""
        return ToolFailure("Give another name.")

    result = await one(executor(making(refuse)), "refuse")
    assert (result.text, result.failed) == ("Give another name.", True)


async def test_cancelling_ends_the_tools_and_leaves() -> None:
    entered, ended = trio.Event(), trio.Event()

    async def hang(_context: ToolContext) -> str:
        """Hang, and complain at the end."""
        entered.set()
        try:
            await trio.sleep_forever()
        finally:
            ended.set()
            raise ValueError("in the clean-up")
        return ""

    own = executor(making(hang))
    with trio.fail_after(HANG_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run, own, ToolCall(id="c", name="hang", arguments="{}"))
            await entered.wait()
            nursery.cancel_scope.cancel()
    assert ended.is_set()


async def test_what_the_storing_of_a_result_raises_comes_out_bare() -> None:
    async def on_result(_result: CallResult) -> None:
        raise StorageError("no space")

    with pytest.raises(StorageError):
        await run(executor(echo), ToolCall(id="c", name="echo", arguments="{}"), on_result=on_result)


async def test_tools_get_who_asks_and_never_another_user() -> None:
    seen: list[UserId] = []

    async def who(context: ToolContext) -> str:
        """Say who asks."""
        seen.append(context.user)
        return ""

    await one(executor(making(who)), "who")
    assert (await one(executor(making(who)), "who", user="eve")).failed
    assert seen == [LOCAL_USER]


# -- ten thousand payloads ---------------------------------------------------------------------------------------------


@attrs.frozen
class Item:
    name: str
    count: Annotated[int, Bounds(at_least=0)] = 0


@tool(permission=Permission.READ)
async def many(
    _context: ToolContext,
    text: Annotated[str, Bounds(at_most=50)],
    number: int,
    share: Annotated[float, Bounds(at_least=0, at_most=1)] = 0.5,
    on: bool = False,
    items: list[Item] | None = None,
    choice: Literal["a", "б"] = "a",
) -> object:
    """Take many things and give odd ones back."""
    if number % 7 == 0:
        raise KeyError(text)
    return {"text": text * (number % 5), "share": share, "on": on, "items": [str(item) for item in items or []]}


def _junk(chance: random.Random, depth: int = 0) -> Any:
    simple: list[Callable[[], Any]] = [
        lambda: None,
        lambda: chance.random() < 0.5,
        lambda: chance.choice([0, -1, 5, 2**63, 10**50, 1e308, float("nan"), float("-inf"), 0.5]),
        lambda: chance.choice(
            ["", "5", "true", "a", "б", "\0", "\ud800", "x" * 60, "[]", "{}", '[{"name": "n"}]', "NaN"]
        ),
    ]
    if depth < 3 and chance.random() < 0.3:
        if chance.random() < 0.5:
            return [_junk(chance, depth + 1) for _ in range(chance.randrange(4))]
        names = ["text", "number", "share", "on", "items", "choice", "name", "count", "", "нет", "\ud800"]
        return {chance.choice(names): _junk(chance, depth + 1) for _ in range(chance.randrange(4))}
    return chance.choice(simple)()


def _payload(chance: random.Random) -> str:
    good = {"text": "слово", "number": chance.randrange(20), "items": [{"name": "n", "count": 1}]}
    kind = chance.randrange(6)
    if kind == 0:
        return json.dumps(_junk(chance))
    if kind == 1:
        return json.dumps({**good, chance.choice([*good, "on", "share", "choice", "?"]): _junk(chance)})
    if kind == 2:  # cut or torn
        text = json.dumps(good, ensure_ascii=False)
        at = chance.randrange(len(text))
        return (
            text[:at]
            + chance.choice(["", "\0", "\ud83d", "}", '"', "[" * 50, "\\u12"])
            + text[at + chance.randrange(3) :]
        )
    if kind == 3:
        return "".join(chr(chance.choice([chance.randrange(32, 127), chance.randrange(0x110000)])) for _ in range(30))
    if kind == 4:
        return json.dumps(json.dumps(good))
    return json.dumps(good)


async def test_ten_thousand_fuzzed_payloads_raise_nothing() -> None:
    chance = random.Random(20261122)
    own = executor(many, echo, max_output_chars=200)
    outcomes: dict[bool, int] = {True: 0, False: 0}
    ids = ["c1", "c2", "", "\0", "ж", "x" * 200, "a b"]
    for _ in range(1000):
        calls = [
            ToolCall(
                id=chance.choice(ids) if chance.random() < 0.1 else f"call_{chance.randrange(10**9)}",
                name=chance.choice([*["many"] * 9, "echo", "", "no\0such", "ж" * 100, "../etc", "\ud800"]),
                arguments=_payload(chance),
            )
            for _ in range(10)
        ]
        results = await run(own, *calls)
        assert len(results) == 10
        assert len({result.call.id for result in results}) == 10
        for result in results:
            outcomes[result.failed] += 1
            assert result.text.strip()
            result.text.encode()
            result.call.arguments.encode()
            assert isinstance(json.loads(result.call.arguments), dict)
            json.dumps(json.loads(result.call.arguments), allow_nan=False)
    assert sum(outcomes.values()) == 10_000
    assert min(outcomes.values()) > 1000  # both kinds were really tried
