"""Exports of Claude with their traps."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from klaw.domain.fact import Fact, FactSource, Origin, check
from klaw.imports import claude
from klaw.imports.events import (
    ExportedChat,
    ExportedMessage,
    ExportedRecord,
    ImportRefused,
    LeftOut,
    ProjectDocument,
    Unread,
)
from tests.support.exports import CASES, events, texts, zipped

AT = "2024-03-05T10:00:00.123456Z"


def message(key: str, sender: str, *blocks: Any, **more: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": each} if isinstance(each, str) else each for each in blocks]
    return {"uuid": key, "sender": sender, "text": "not shown", "content": content, "created_at": AT, **more}


def export(folder: Path, *conversations: Any) -> Path:
    return zipped(folder / "data.zip", conversations__json=list(conversations), users__json=[], projects__json=[])


def chat(*messages: Any, key: str = "u1", name: str = "Велосипед") -> dict[str, Any]:
    return {"uuid": key, "name": name, "created_at": AT, "updated_at": AT, "chat_messages": list(messages)}


def test_what_was_said(tmp_path: Path) -> None:
    attached = [{"file_name": "счёт.txt", "extracted_content": "42 рубля"}, {"file_name": "", "extracted_content": "x"}]
    path = export(
        tmp_path,
        chat(
            message("m1", "human", "Где мой велосипед?", attachments=attached, files=[{"file_name": "кот.png"}, {}]),
            message("m2", "assistant", {"type": "thinking", "thinking": "hm"}, "In the", {"type": "tool_use"}, "shed"),
            message("m3", "human", created_at=None, text="old form") | {"content": None},
            message("m4", "assistant", {"type": "tool_result", "content": []}, text=""),
        ),
    )
    assert events(path, claude.read) == [
        ExportedChat(key="u1", title="Велосипед"),
        ExportedMessage(
            key="m1",
            role="user",  # type: ignore[arg-type]
            text="Где мой велосипед?\n[file: счёт.txt]\n42 рубля\n[file: pasted text]\nx\n[file: кот.png]",
            at="2024-03-05T10:00:00.123Z",
        ),
        LeftOut("tools and thoughts"),
        ExportedMessage(key="m2", role="assistant", text="In the\nshed", at="2024-03-05T10:00:00.123Z"),  # type: ignore[arg-type]
        ExportedMessage(key="m3", role="user", text="old form", at="2024-03-05T10:00:00.123Z"),  # type: ignore[arg-type]
        LeftOut("tools and thoughts"),
    ]


@pytest.mark.parametrize("bad", [None, [], {}, {"uuid": 1, "chat_messages": []}, {"uuid": "x", "chat_messages": 5}])
def test_one_bad_chat_does_not_stop_the_rest(tmp_path: Path, bad: Any) -> None:
    path = export(tmp_path, chat(message("a", "human", "one")), bad, chat(message("b", "human", "два"), key="u2"))
    assert texts(path, claude.read) == ["user: one", "user: два"]
    assert [each.what for each in events(path, claude.read) if isinstance(each, Unread)] == [
        "conversations.json, chat 2"
    ]


@pytest.mark.parametrize("bad", [None, 5, {}, {"uuid": "x", "sender": "robot", "content": []}])
def test_one_bad_message_does_not_stop_its_chat(tmp_path: Path, bad: Any) -> None:
    path = export(tmp_path, chat(message("a", "human", "one"), bad, message("b", "human", "два")))
    assert texts(path, claude.read) == ["user: one", "user: два"]
    unread = [each.what for each in events(path, claude.read) if isinstance(each, Unread)]
    assert unread == ["conversations.json, chat 1, message 2"]


def test_the_way_to_the_newest_answer_is_what_was_said() -> None:
    """26.C3: replaced by later ones are counted, and not imported."""
    found = events(CASES / "claude_replaced_answers_imported", claude.read)
    assert [each.text for each in found if isinstance(each, ExportedMessage)] == [
        "Plan a trip to Bergen.",
        "By bus, rather.",
        "Thanks.",
        "Have a good trip.",
    ]
    assert found.count(LeftOut("replaced by later ones")) == 3


@pytest.mark.parametrize(
    ("parents", "current", "said"),
    [
        ((None, "m0", "m1", "m0"), "m2", "012"),
        ((None, "m0", "m1", "m0"), None, "03"),
        ((None, "m0", "m1", "m0"), "gone", "03"),
        (("gone", "m0", "lost", "m2"), None, "0123"),
        ((None, None, None, None), None, "0123"),
        (("m3", "m0", "m1", "m2"), None, "0123"),
    ],
)
def test_ways_through_a_chat(tmp_path: Path, parents: tuple[str | None, ...], current: str | None, said: str) -> None:
    root = "00000000-0000-4000-8000-000000000000"
    told = [message(f"m{n}", "human", f"{n}", created_at=f"2024-03-05T10:0{n}:00Z") for n in range(4)]
    if any(parents):
        told = [each | {"parent_message_uuid": parent or root} for each, parent in zip(told, parents, strict=True)]
    path = export(tmp_path, chat(*told) | {"current_leaf_message_uuid": current})
    assert "".join(each[-1] for each in texts(path, claude.read)) == said


def test_what_stands_for_a_tool_is_nobodys_word(tmp_path: Path) -> None:
    """26.C3: the placeholder is left out wherever it stands; the document that was made is kept; who speaks of the
    placeholder is heard."""
    assert texts(CASES / "claude_placeholder_imported", claude.read) == [
        "user: Make me a table.",
        "assistant: [document]\na | b",
        "user: Thanks.",
        "assistant: Welcome.",
    ]
    stands = "This block is not supported on your current device yet."
    artifact = "Viewing artifacts created via the Analysis Tool web feature preview isn\u2019t yet supported on mobile."
    tool, written = {"type": "tool_use"}, {"path": "/a/b.md", "file_text": "B"}
    quoted = f"Why does it say “{stands}”?"
    path = export(
        tmp_path,
        chat(
            message("1", "assistant", f"Here:\n\n```\n{stands}\n```\n\nDone.", f"```\n{artifact}\n```"),
            message("2", "assistant", stands),
            message("3", "human", quoted),
            message(
                "4", "assistant", '<antThinking>no</antThinking>It is\n<antArtifact title="x">a plan</antArtifact>'
            ),
            message(
                "5", "human", {"type": "voice_note", "title": "x", "text": "spoken"}, {"type": "new", "text": "no"}
            ),
            message("6", "assistant", {**tool, "name": "create_file", "input": written}, text=""),
            message("7", "assistant", {**tool, "name": "artifacts", "input": {"id": "p", "new_str": "new"}}, text=""),
        ),
    )
    assert texts(path, claude.read) == [
        "assistant: Here:\n\nDone.",
        f"user: {quoted}",
        "assistant: It is\na plan",
        "user: spoken",
        "assistant: [document: b.md]\nB",
        "assistant: [document, changed: p]\nnew",
    ]


def test_a_conversation_memories_and_projects_of_a_file_each() -> None:
    """26.C3: memories become facts that a model wrote, documents of projects are offered."""
    assert texts(CASES / "claude_one_conversation_object.json", claude.read) == [
        "user: One chat alone.",
        "assistant: Read it.",
    ]
    found = events(CASES / "claude_memories_and_projects_ignored.zip", claude.read)
    assert [each.text for each in found if isinstance(each, ExportedMessage)] == ["Hello.", "Hi."]
    (fact,) = (each.value for each in found if isinstance(each, ExportedRecord))
    assert isinstance(fact, Fact)
    check(fact)
    assert (fact.text, fact.origin, fact.source) == (
        "Anna lives in Riga and grows apples.",
        Origin.ASSISTANT,
        FactSource.ARCHIVIST,
    )
    assert found[-2:] == [
        LeftOut("instructions of a project"),
        ProjectDocument("p1", "Garden", "plan.md", "Plant the apple trees in April."),
    ]


def test_memories_of_every_form(tmp_path: Path) -> None:
    long = "A sentence of a long memory. " * 200
    text = f"# Work\n**Purpose & context**\n\n- Builds boats.\n2. **Anna** is his sister.\n***\n\x1b[31mred\n{long}"
    (tmp_path / "memories.json").write_text(
        json.dumps([{"conversations_memory": text, "project_memories": {"p": "Oak"}}])
    )
    found = [each.value for each in events(tmp_path, claude.read) if isinstance(each, ExportedRecord)]
    said = [each.text for each in found if isinstance(each, Fact) and check(each) is None]
    assert said[:3] == ["Builds boats.", "**Anna** is his sister.", "red"]
    assert (" ".join(said[3:-1]), said[-1]) == (long.strip(), "Oak")


def test_a_chat_in_each_line(tmp_path: Path) -> None:
    """Of a part: also with a line that is damaged."""
    lines = [json.dumps(chat(message(f"{n}", "human", f"{n}"), key=f"u{n}")) for n in range(3)]
    zipped(tmp_path / "conversations-000.zip", data__jsonl="\n".join(lines) + "\n")
    assert texts(tmp_path / "conversations-000.zip", claude.read) == [f"user: {n}" for n in range(3)]
    assert texts(tmp_path, claude.read) == [f"user: {n}" for n in range(3)]
    (tmp_path / "data.jsonl").write_text("\n".join((lines[0], lines[1].replace("chat_messages", "\\x"), lines[2])))
    found = events(tmp_path / "data.jsonl", claude.read)
    assert [each.text for each in found if isinstance(each, ExportedMessage)] == ["0", "2"]
    assert len([each for each in found if isinstance(each, Unread)]) == 1


def test_an_export_in_parts(tmp_path: Path) -> None:
    """26.C3: the list alone says what is to be done; with its parts beside it, packed or not, it is read."""
    with pytest.raises(
        ImportRefused, match=r"download them \(conversations-000.zip, memories-000.zip\) into one folder"
    ):
        events(CASES / "claude_manifest_alone" / "manifest-0001.json", claude.read)
    shutil.copy(CASES / "claude_manifest_alone" / "manifest-0001.json", tmp_path)
    missing = [each.what for each in events(tmp_path, claude.read) if isinstance(each, Unread)]
    assert missing == ["conversations-000.zip", "memories-000.zip"]
    zipped(tmp_path / "conversations-000.zip", conversations__json=[chat(message("a", "human", "one"))])
    for given in (tmp_path, tmp_path / "manifest-0001.json"):
        found = events(given, claude.read)
        assert [each.text for each in found if isinstance(each, ExportedMessage)] == ["one"]
        assert [each.what for each in found if isinstance(each, Unread)] == ["memories-000.zip"]
    (tmp_path / "conversations-000.zip").write_bytes(b"PK\3\4 damaged")
    assert len([each for each in events(tmp_path, claude.read) if isinstance(each, Unread)]) == 2


def test_what_people_wrote_themselves_stays_as_it_is(tmp_path: Path) -> None:
    """26.C3: also where it looks like what Claude writes for its own page."""
    said = "What does <antThinking>hm</antThinking> mean?"
    pictured = message("p", "human", "See", files_v2=[{"file_name": "a.png"}])
    path = export(tmp_path, chat(message("q", "human", said), message("a", "assistant", said), pictured))
    shown = [f"user: {said}", "assistant: What does  mean?", "user: See\n[file: a.png]"]
    assert texts(path, claude.read) == shown
