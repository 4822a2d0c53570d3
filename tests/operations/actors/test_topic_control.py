"""``klaw topics merge|split|rebuild|history|undo`` of a real server without a model."""

from pathlib import Path
from typing import Any

import pytest
import trio

from klaw.app.app import App, running
from klaw.cli.main import main
from klaw.config.load import parse as parse_config
from klaw.config.paths import Paths
from klaw.operations.memory.topics import MOST_TOLD
from klaw.operations.operation import OperationError
from klaw.operations.perform import read_call
from klaw.store.kinds import topics
from tests.support.admin import SETTINGS, Commands, parts_of, served
from tests.support.topics import archive, say
from tests.support.waiting import HANG_S


async def ask(commands: Commands, command: str, **args: Any) -> dict[str, Any]:
    return await commands.run(read_call(command, args))


async def refused(commands: Commands, command: str, **args: Any) -> tuple[str, str]:
    with pytest.raises(OperationError) as caught:
        await ask(commands, command, **args)
    return caught.value.code, str(caught.value)


async def test_bad_input_is_refused_with_the_name_of_its_field(app: App, commands: Commands) -> None:
    rowids = await say(app.core.store, "1", "2", user="local")
    one, two = await archive(app.core.store, *([each] for each in rowids), user="local")
    wrong: list[tuple[str, dict[str, Any], str, str]] = [
        ("topics_merge", {"fields": {"topics": "1,2"}}, "bad_args", "args.topics: must be a list"),
        ("topics_merge", {"fields": {"topics": [1, True]}}, "bad_args", "args.topics[1]: must be a whole number"),
        ("topics_merge", {"fields": {"topics": [0, 1]}}, "bad_args", "args.topics[0]: must be at least 1"),
        ("topics_merge", {"fields": {}}, "bad_args", "args.topics: is required"),
        ("topics_merge", {"fields": {"topics": [1, 2], "third": 3}}, "bad_args", "args.fields: unknown field"),
        ("topics_merge", {"fields": {"topics": [1, 2], "summary": 5}}, "bad_args", "args.summary: must be a text"),
        ("topics_merge", {"fields": {"topics": [1, 1]}}, "topics_refused", "topics: topic 1 is named twice"),
        ("topics_merge", {"fields": {"topics": [1, 9]}}, "unknown_topic", "topics: there is no topic 9"),
        ("topics_merge", {"user": "boris", "fields": {"topics": [1, 2]}}, "unknown_topic", "topics: there is no"),
        ("topics_split", {"topic": 1, "fields": {"at": "main#1"}}, "bad_args", "args.at: must be a list"),
        ("topics_split", {"topic": 1, "fields": {"at": [1]}}, "bad_args", "args.at[0]: must be a text"),
        ("topics_split", {"topic": "1", "fields": {}}, "bad_args", "args.topic: must be a whole number"),
        ("topics_split", {"topic": 1, "fields": {}}, "topics_refused", "topic: topic 1 has one message only"),
        ("topics_rebuild", {}, "topics_off", "topics.enabled"),
        ("topics_rebuild", {"chat": "boris:main"}, "bad_args", "args.chat: is not the user's"),
        ("topics_rebuild", {"chat": "local:x"}, "unknown_chat", "chat: there is no such chat"),
        ("topics_rebuild", {"since": "soon"}, "bad_args", "args.since: must be a time"),
        ("topics_undo", {}, "cannot_undo", "there is no such change"),
        ("topics_undo", {"entry": 0}, "bad_args", "args.entry: must be at least 1"),
        ("topics_history", {"topic": -1}, "bad_args", "args.topic: must be at least 1"),
    ]
    for command, args, code, said in wrong:
        found = await refused(commands, command, **args)
        assert found[0] == code, (command, args, found)
        assert said in found[1], (command, args, found)
    assert [each.id for each in await app.core.readers.run(topics.of_user, "local")] == [two.id, one.id]


async def test_the_time_since_when_topics_are_made_again_is_that_of_the_person(home: Path) -> None:
    config, _ = parse_config(SETTINGS[:-1] + ", topics: {enabled: true}}", {})
    with trio.fail_after(HANG_S):
        async with running(config, Paths.resolve(home, {})) as app:
            await archive(app.core.store, await say(app.core.store, "1", user="local"), user="local")
            commands = Commands(parts_of(app))
            await ask(commands, "zone_set", zone="Pacific/Kiritimati")
            found = await ask(commands, "topics_rebuild", since="2000-01-02", dry_run=True)
            assert found["since"].startswith("2000-01-01T10:00")


async def test_the_command_line_changes_topics_and_takes_it_back(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config, _ = parse_config(SETTINGS[:-1] + ", topics: {enabled: true}}", {})
    paths = Paths.resolve(home, {})

    async def klaw(*words: str) -> tuple[int, str, str]:
        code = await trio.to_thread.run_sync(main, ["topics", *words, "--home", str(home)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    with trio.fail_after(HANG_S):
        async with running(config, paths) as app, served(app, Commands(parts_of(app))):
            assert (await klaw("history"))[:2] == (0, "no changes of topics\n")
            rowids = await say(app.core.store, "поезд", "билет", "хлеб", user="local")
            await archive(app.core.store, rowids[:2], rowids[2:], user="local", consolidated=True, facts=True)
            code, out, err = await klaw("merge", "1", "2", "--summary", "Поезд и хлеб\x1b[2J")
            assert (code, err) == (0, "")
            assert "Поезд и хлеб" in out
            assert "\x1b" not in out
            code, out, _ = await klaw("split", "1", "--at", "main#3", "--at", "main#2")
            assert code == 0
            assert "instead of topic 1:" in out
            assert "(часть 3 из 3)" in out
            history = (await klaw("history"))[1].splitlines()
            assert [row.split()[0] for row in history] == ["entry", "3", "2"]
            assert "split 1 -> 3, 4, 5" in history[1]
            code, _, err = await klaw("undo", "2")
            assert (code, err) == (
                1,
                "klaw: change 3 came later and is about the same messages: take that back first\n",
            )
            assert (await klaw("undo"))[0] == 0
            assert "restored:" in (await klaw("undo"))[1]
            assert "undone by" in (await klaw("history", "2"))[1]
            code, out, _ = await klaw("rebuild", "--dry-run")
            assert (code, out.splitlines()[0]) == (0, "would be dropped and made again: 2 topics of 3 messages")
            code, _, err = await klaw("rebuild")
            assert (code, "add --yes" in err) == (1, True)  # nobody was there to be asked
            assert await app.core.readers.run(topics.count, "local") == 2
            code, out, _ = await klaw("rebuild", "--chat", "main", "--since", "2000-01-01", "--yes")
            assert (code, out.splitlines()[0]) == (0, "dropped 2 topics of 3 messages, to be made again")
            entry = out.splitlines()[1].rsplit(" ", 1)[1]
            assert (await klaw("undo", entry))[0] == 0
            assert await app.core.readers.run(topics.count, "local") == 2
            for words, code, said in (
                (("merge", "1"), 2, "TOPIC: must have 2 to 50 entries"),
                (("merge", "1", "x"), 2, "TOPIC: must be a whole number"),
                (("split", "0"), 2, "TOPIC: must be at least 1"),
                (("history", "9" * 30), 2, "TOPIC: must be a whole number"),
                (("undo", "-"), 2, "ENTRY: must be a whole number"),
                (("merge", "1", "99"), 1, "TOPIC: there is no topic 99"),
                (("split", "1", "--at", "main#1"), 1, "--at: message 'main#1' is the first of topic 1"),
                (("split", "1"), 1, "no model can divide topic 1 now"),
                (("history", "--limit", "0"), 2, "--limit:"),
            ):
                found = await klaw(*words)
                assert (found[0], said in found[2]) == (code, True), found


async def test_answers_about_very_many_topics_are_bounded(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A user may have ten thousand: their summaries in one answer would hold up everybody else's replies."""
    config, _ = parse_config(SETTINGS[:-1] + ", topics: {enabled: true}}", {})
    many = MOST_TOLD + 20
    with trio.fail_after(HANG_S):
        async with running(config, Paths.resolve(home, {})) as app, served(app, Commands(parts_of(app))):
            commands = Commands(parts_of(app))
            rowids = await say(app.core.store, *(f"слово {number}" for number in range(many)), user="local")
            await archive(app.core.store, *([each] for each in rowids), user="local", consolidated=True, facts=True)
            told = await ask(commands, "topics_rebuild", dry_run=True)
            assert (told["count"], told["messages"], len(told["topics"])) == (many, many, MOST_TOLD)
            assert await trio.to_thread.run_sync(main, ["topics", "rebuild", "--yes", "--home", str(home)]) == 0
            assert f"dropped {many} topics of {many} messages" in capsys.readouterr().out
            (change,) = (await ask(commands, "topics_history"))["changes"]
            assert (len(change["before"]), change["before_count"]) == (MOST_TOLD, many)
            assert await trio.to_thread.run_sync(main, ["topics", "history", "--home", str(home)]) == 0
            assert "and 20 more -> -" in capsys.readouterr().out
            done = await ask(commands, "topics_undo")
            assert (done["count"], len(done["topics"])) == (many, MOST_TOLD)
            again = await ask(commands, "topics_undo", entry=done["entry"])
            assert (again["ended_count"], len(again["ended"])) == (many, MOST_TOLD)


async def test_a_summary_is_edited_and_that_is_undone(app: App, commands: Commands) -> None:
    rowids = await say(app.core.store, "1", "2", user="local")
    (topic,) = await archive(app.core.store, rowids, user="local", facts=True)
    done = await ask(commands, "topics_edit", topic=topic.id, fields={"summary": " The garden gate "})
    assert (done["topic"]["summary"], done["topic"]["messages"], done["topic"]["facts"]) == ("The garden gate", 2, True)
    assert [each["id"] for each in (await ask(commands, "topics_search", query="garden"))["topics"]] == [topic.id]
    await ask(commands, "topics_undo")
    shown = await ask(commands, "topics_show", topic=str(topic.id))
    assert (shown["topic"]["summary"], len(shown["messages"])) == (topic.summary, 2)
    code, said = await refused(commands, "topics_edit", topic=topic.id, fields={"summary": "x" * 2_001})
    assert (code, said) == ("bad_args", "args.summary: must have 1 to 2000 characters")
    assert (await refused(commands, "topics_edit", topic=9, fields={"summary": "x"}))[0] == "unknown_topic"
    assert (await refused(commands, "topics_edit", user="boris", topic=topic.id, fields={"summary": "x"}))[0] == (
        "unknown_topic"
    )
