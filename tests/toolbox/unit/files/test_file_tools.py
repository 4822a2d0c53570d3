"""The file tools as a model calls them: through the executor, on real folders."""

import errno
import json
import os
import stat

import pytest

from klaw.actor.threads import Threads
from klaw.domain.names import LOCAL_USER, UserId, chat_id
from klaw.llm.types import ToolCall
from klaw.toolbox.builtin.file_tools import file_tools
from klaw.toolbox.executor import Executor, prepare
from klaw.toolbox.files import access
from klaw.toolbox.spec import Toolbox, ToolContext

MAX_CHARS = 2_000


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / "workspace").mkdir()
    return tmp_path / "workspace"


@pytest.fixture
def run(workspace):
    toolbox = Toolbox()
    toolbox.register(*file_tools(workspace, Threads("files", 2), MAX_CHARS))
    executor = Executor(toolbox=toolbox, max_output_chars=MAX_CHARS)

    async def call(*calls: tuple[str, dict], user: UserId = LOCAL_USER):
        context = ToolContext(user=user, chat=chat_id(user, "main"))
        asked = [
            ToolCall(id=str(number), name=name, arguments=json.dumps(given))
            for number, (name, given) in enumerate(calls)
        ]
        results = await executor.run(prepare(asked, taken=(), new_id=lambda: "new", most=32), context)
        return results if len(results) > 1 else results[0]

    return call


async def test_write_read_list_find_and_patch(run, workspace):
    text = "# План\n\nпервая строка\nsecond line\n"
    made = await run(("file_write", {"path": "notes/plan.md", "content": text}))
    assert made.text == f"notes/plan.md: created, {len(text.encode())} bytes"
    assert (await run(("file_read", {"path": "notes/plan.md"}))).text == text.removesuffix("\n")
    shown = await run(("file_read", {"path": "notes/plan.md", "offset": 3, "limit": 1, "line_numbers": True}))
    assert shown.text == "3: первая строка\n[lines 3 to 3 of 4; continue with offset 4]"
    assert (await run(("file_read", {"path": "notes/plan.md", "offset": -1}))).text.startswith("second line\n")
    assert (await run(("file_list", {}))).text == "notes/"
    assert (await run(("file_list", {"path": "notes"}))).text == f"notes/plan.md {len(text.encode())}"
    assert (await run(("file_glob", {"pattern": "**/*.md"}))).text.startswith("notes/plan.md ")
    assert (await run(("file_glob", {"pattern": "*.md"}))).text == "(no file fits)"
    edits = [{"search": "первая", "replace": "вторая"}, {"search": "second line", "replace": "a\nb"}]
    assert (await run(("file_patch", {"path": "notes/plan.md", "edits": edits}))).text == "notes/plan.md: 2 edits done"
    assert (workspace / "notes" / "plan.md").read_text() == "# План\n\nвторая строка\na\nb\n"
    await run(("file_write", {"path": "notes/plan.md", "content": "конец\n", "mode": "append"}))
    assert (workspace / "notes" / "plan.md").read_text().endswith("a\nb\nконец\n")
    assert sorted(path.name for path in (workspace / "notes").iterdir()) == ["plan.md"]


async def test_an_existing_file_is_not_overwritten_by_accident(run, workspace):
    (workspace / "a.md").write_text("old")
    (workspace / "a.md").chmod(0o640)
    refused = await run(("file_write", {"path": "a.md", "content": "new"}))
    assert refused.failed
    assert "exists already" in refused.text
    assert (workspace / "a.md").read_text() == "old"
    assert not (await run(("file_write", {"path": "a.md", "content": "new", "mode": "replace"}))).failed
    assert (workspace / "a.md").read_text() == "new"
    assert stat.S_IMODE((workspace / "a.md").stat().st_mode) == 0o640
    await run(("file_write", {"path": "private.md", "content": "x"}))
    assert stat.S_IMODE((workspace / "private.md").stat().st_mode) == 0o600


async def test_a_read_only_file_stays(run, workspace):
    (workspace / "SOUL.md").write_text("mine")
    (workspace / "SOUL.md").chmod(0o444)
    edits = [{"search": "mine", "replace": "yours"}]
    for name, more in (
        ("file_patch", {"edits": edits}),
        ("file_write", {"content": "x", "mode": "replace"}),
        ("file_write", {"content": "x", "mode": "append"}),
    ):
        assert "read-only" in (await run((name, {"path": "SOUL.md", **more}))).text
    assert (workspace / "SOUL.md").read_text() == "mine"
    assert stat.S_IMODE((workspace / "SOUL.md").stat().st_mode) == 0o444


@pytest.mark.parametrize(
    ("search", "said"),
    [
        ("", "search is empty"),
        ("line", "occurs 3 times (lines 1, 2, 3)"),
        ("second  line", "only spaces differ"),
        ("secund line", "2: second line"),
        ("что-то совсем другое", "nor anything like"),
    ],
)
async def test_an_edit_that_does_not_fit_changes_nothing_and_helps(run, workspace, search, said):
    (workspace / "a.md").write_text("first line\nsecond line\nthird line\n")
    edits = [{"search": "first", "replace": "1st"}, {"search": search, "replace": "x"}]
    refused = await run(("file_patch", {"path": "a.md", "edits": edits}))
    assert refused.failed
    assert "edit 2 of 2" in refused.text
    assert said in refused.text
    assert (workspace / "a.md").read_text() == "first line\nsecond line\nthird line\n"


async def test_windows_line_ends_stay(run, workspace):
    (workspace / "a.txt").write_bytes(b"one\r\ntwo\r\nthree\r\n")
    await run(("file_patch", {"path": "a.txt", "edits": [{"search": "one\ntwo", "replace": "1\n2"}]}))
    assert (workspace / "a.txt").read_bytes() == b"1\r\n2\r\nthree\r\n"
    (workspace / "b.txt").write_bytes(b"one\ntwo\nthree\n")
    await run(("file_patch", {"path": "b.txt", "edits": [{"search": "one\r\ntwo", "replace": "1\r\n2"}]}))
    assert (workspace / "b.txt").read_bytes() == b"1\n2\nthree\n"


async def test_patches_of_one_round_do_not_lose_each_other(run, workspace):
    (workspace / "a.md").write_text("".join(f"line-{number};\n" for number in range(8)))
    calls = [
        ("file_patch", {"path": "a.md", "edits": [{"search": f"line-{n};", "replace": f"done-{n};"}]}) for n in range(8)
    ]
    assert not any(result.failed for result in await run(*calls))
    assert (workspace / "a.md").read_text() == "".join(f"done-{number};\n" for number in range(8))


async def test_damaged_binary_large_and_closed_files(run, workspace):
    (workspace / "latin.txt").write_bytes(b"caf\xe9\n")
    (workspace / "image.png").write_bytes(b"\x89PNG\0\0")
    (workspace / "large.txt").write_bytes(b"x" * 1_000_001)
    (workspace / ".env").write_text("KEY=1")
    (workspace / "long.txt").write_text("ж" * 5_000 + "\n" + "second\n")
    (workspace / "many.txt").write_text("line\n" * 2_000)
    (workspace / "empty.txt").touch()
    os.mkfifo(workspace / "pipe")
    read = "file_read"
    assert (await run((read, {"path": "latin.txt"}))).text.startswith("caf\ufffd\n[bytes that are not UTF-8")
    assert (
        "damage" in (await run(("file_patch", {"path": "latin.txt", "edits": [{"search": "c", "replace": "k"}]}))).text
    )
    assert "is binary" in (await run((read, {"path": "image.png"}))).text
    assert "is larger than 1000000 bytes" in (await run((read, {"path": "large.txt"}))).text
    assert "secrets" in (await run((read, {"path": ".env"}))).text
    assert "not a regular file" in (await run((read, {"path": "pipe"}))).text
    assert (await run((read, {"path": "empty.txt"}))).text == "(the file is empty)"
    long = await run((read, {"path": "long.txt"}))
    assert "continue with offset 2; line 1 is longer than can be shown" in long.text
    many = await run((read, {"path": "many.txt", "limit": 2_000}))
    assert "[Cut:" not in many.text
    assert "of 2000; continue with offset" in many.text
    assert "does not exist" in (await run((read, {"path": "many.txt", "offset": 3_000}))).text
    listing = (await run(("file_list", {}))).text
    assert "[1 closed to tools]" in listing
    assert "pipe (other)" in listing
    for content in ("a\0b", "\ud800"):
        assert (await run(("file_write", {"path": "bad.txt", "content": content}))).failed
    too_large = await run(("file_write", {"path": "large.txt", "content": "y", "mode": "append"}))
    assert "is larger than 1000000 bytes" in too_large.text
    assert (await run(("file_write", {"path": "big.txt", "content": "я" * 500_001}))).failed
    assert not (workspace / "big.txt").exists()
    for bad in ("../x", "/etc/passwd", "a\nb"):
        for name, more in ((read, {}), ("file_write", {"content": "x"}), ("file_list", {})):
            assert (await run((name, {"path": bad, **more}))).failed
        assert (await run(("file_glob", {"pattern": bad}))).failed


async def test_users_do_not_see_each_others_files(run, workspace):
    anna = UserId("anna")
    (workspace / "MEMORY.md").write_text("the owner's")
    assert (await run(("file_list", {}), user=anna)).text == "(empty)"
    assert (await run(("file_read", {"path": "MEMORY.md"}), user=anna)).failed
    await run(("file_write", {"path": "notes.md", "content": "Анна"}), user=anna)
    assert (await run(("file_read", {"path": "notes.md"}), user=anna)).text == "Анна"
    assert (await run(("file_read", {"path": "users/anna/notes.md"}))).failed
    assert "notes.md" not in (await run(("file_glob", {"pattern": "**/*"}))).text
    assert (workspace / "users" / "anna" / "notes.md").read_text() == "Анна"


async def test_a_failed_write_leaves_the_old_content_and_no_rubbish(run, workspace, monkeypatch):
    (workspace / "a.md").write_text("old")

    def full(_fd):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(access.os, "fsync", full)
    refused = await run(("file_write", {"path": "a.md", "content": "new", "mode": "replace"}))
    assert "no space is left" in refused.text
    assert (workspace / "a.md").read_text() == "old"
    assert [path.name for path in workspace.iterdir()] == ["a.md"]


async def test_a_file_changed_meanwhile_is_not_overwritten(run, workspace, monkeypatch):
    (workspace / "a.md").write_text("old text")
    real = access._check_unchanged

    def first_the_editor(place, stamp):
        (workspace / "a.md").write_text("by the person")
        real(place, stamp)

    monkeypatch.setattr(access, "_check_unchanged", first_the_editor)
    refused = await run(("file_patch", {"path": "a.md", "edits": [{"search": "old", "replace": "new"}]}))
    assert "changed by somebody else" in refused.text
    assert (workspace / "a.md").read_text() == "by the person"


@pytest.mark.parametrize("mode", ["create", "replace", "append"])
async def test_a_new_file_takes_no_name_that_somebody_took_meanwhile(run, workspace, monkeypatch, mode):
    real = access._check_unchanged

    def then_the_editor(place, stamp):
        real(place, stamp)
        (workspace / "a.md").write_text("by the person")

    monkeypatch.setattr(access, "_check_unchanged", then_the_editor)
    refused = await run(("file_write", {"path": "a.md", "content": "by the model", "mode": mode}))
    assert "exists already" in refused.text
    assert (workspace / "a.md").read_text() == "by the person"
    assert [path.name for path in workspace.iterdir()] == ["a.md"]


async def test_a_disk_without_hard_links_takes_new_files_too(run, workspace, monkeypatch):
    def forbidden(*_names, **_more):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(access.os, "link", forbidden)
    assert not (await run(("file_write", {"path": "a.md", "content": "new"}))).failed
    assert [(path.name, path.read_text()) for path in workspace.iterdir()] == [("a.md", "new")]
