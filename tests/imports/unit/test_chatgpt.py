"""Exports of ChatGPT with their traps."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from klaw.imports import chatgpt
from klaw.imports.chatgpt import unmarked
from klaw.imports.events import ExportedChat, ExportedMessage, LeftOut, Unread
from tests.support.exports import CASES, START, chatgpt_export, conversation, events, node, talk, texts, zipped


def test_the_way_to_the_current_node_is_what_was_said(tmp_path: Path) -> None:
    """A question that was edited, and an answer that was made again, are branches that nobody sees any more."""
    found = conversation(
        "c1",
        "Велосипед",
        node("s", "root", "system", "", None, metadata={"is_visually_hidden_from_conversation": True}),
        node("q1", "s", "user", "Где мой велосипед?"),
        node("q2", "s", "user", "Where is my bicycle?", START + 1),
        node("a1", "q2", "assistant", "In the shed", START + 2),
        node("a2", "q2", "assistant", "В сарае", START + 3),
        node("q3", "a1", "user", "Thanks", None),
        current="q3",
    )
    path = chatgpt_export(tmp_path, found)
    assert events(path, chatgpt.read) == [
        ExportedChat(key="c1", title="Велосипед"),
        LeftOut("hidden"),
        ExportedMessage(key="q2", role="user", text="Where is my bicycle?", at="2023-11-14T22:13:21.000Z"),  # type: ignore[arg-type]
        ExportedMessage(key="a1", role="assistant", text="In the shed", at="2023-11-14T22:13:22.000Z"),  # type: ignore[arg-type]
        ExportedMessage(key="q3", role="user", text="Thanks", at="2023-11-14T22:13:22.000Z"),  # type: ignore[arg-type]
        LeftOut("replaced by later ones"),
        LeftOut("replaced by later ones"),
    ]


@pytest.mark.parametrize("current", [None, "gone"])
def test_without_a_current_node_the_last_leaf_counts(tmp_path: Path, current: str | None) -> None:
    found = conversation("c", "t", node("q", "root", "user", "Q"), node("a", "q", "assistant", "old", START + 1))
    found["mapping"]["b"] = node("b", "q", "assistant", "new", START + 2)
    found["current_node"] = current
    assert texts(chatgpt_export(tmp_path, found), chatgpt.read) == ["user: Q", "assistant: new"]


def test_a_circle_of_nodes_ends(tmp_path: Path) -> None:
    found = conversation("c", "t", node("q", "root", "user", "Q"), node("a", "q", "assistant", "A"))
    found["mapping"]["q"]["parent"] = "a"
    assert texts(chatgpt_export(tmp_path, found), chatgpt.read) == ["user: Q", "assistant: A"]


@pytest.mark.parametrize("bad", [None, 1, "text", [], {}, {"mapping": 5}, {"mapping": {"a": 1}, "id": "x"}])
def test_one_bad_chat_does_not_stop_the_rest(tmp_path: Path, bad: Any) -> None:
    path = chatgpt_export(tmp_path, talk("c1", "One", "first"), bad, talk("c2", "Два", "второй"))
    found = events(path, chatgpt.read)
    assert [each.text for each in found if isinstance(each, ExportedMessage)] == ["first", "второй"]
    (unread,) = (each for each in found if isinstance(each, Unread))
    assert unread.what == "conversations.json, chat 2"


def test_parts_that_are_no_text_are_named_or_left_out(tmp_path: Path) -> None:
    picture = {"content_type": "image_asset_pointer", "asset_pointer": "file-service://file-1"}
    sound = {"content_type": "audio_transcription", "text": "сказано вслух"}
    said = {
        "content_type": "multimodal_text",
        "parts": [picture, sound, "what is this?", {"content_type": "audio_asset_pointer"}],
    }
    attached = {"attachments": [{"id": "file-1", "name": "кот.png"}, {"id": "file-2", "name": "plan.pdf"}]}
    found = conversation(
        "c",
        "t",
        node("q", "root", "user", said, metadata=attached),
        node("think", "q", "assistant", {"content_type": "thoughts", "thoughts": []}),
        node("call", "think", "assistant", {"content_type": "code", "text": "search()"}, recipient="web"),
        node("tool", "call", "tool", "found"),
        node("a", "tool", "assistant", {"content_type": "code", "text": "print(1)"}),
        node("empty", "a", "assistant", ""),
        node("odd", "empty", "assistant", {"content_type": "text", "parts": 7}),
    )
    path = chatgpt_export(tmp_path, found)
    assert texts(path, chatgpt.read) == [
        "user: [image: кот.png]\nсказано вслух\nwhat is this?\n[file: plan.pdf]",
        "assistant: print(1)",
    ]
    assert [each.why for each in events(path, chatgpt.read) if isinstance(each, LeftOut)] == [
        "instructions, tools and thoughts"
    ] * 3
    assert [each.what for each in events(path, chatgpt.read) if isinstance(each, Unread)] == [
        "conversations.json, chat 1, message odd"
    ]


def test_split_files_of_a_zip_a_folder_and_a_bare_file(tmp_path: Path) -> None:
    one, two = [talk("c1", "1", "one")], [talk("c2", "2", "два")]
    files = {
        "conversations-000__json": one,
        "conversations-001__json": two,
        "user__json": {},
        "__MACOSX/._conversations__json": "x",
    }
    assert texts(zipped(tmp_path / "a.zip", **files), chatgpt.read) == ["user: one", "user: два"]
    folder = tmp_path / "folder" / "export"
    folder.mkdir(parents=True)
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        archive.extractall(folder)
    assert texts(tmp_path / "folder", chatgpt.read) == ["user: one", "user: два"]
    assert texts(folder / "conversations-001.json", chatgpt.read) == ["user: два"]


def test_what_is_cut_off_is_read_up_to_there(tmp_path: Path) -> None:
    path = chatgpt_export(tmp_path, talk("c1", "1", "one"), talk("c2", "2", "two"))
    with zipfile.ZipFile(path) as archive:
        text = archive.read("conversations.json")
    (tmp_path / "cut.json").write_bytes(b"\xef\xbb\xbf" + text[:-40])
    found = events(tmp_path / "cut.json", chatgpt.read)
    assert [each.text for each in found if isinstance(each, ExportedMessage)] == ["one"]
    assert [each.what for each in found if isinstance(each, Unread)] == ["cut.json, after chat 1"]


def test_marks_of_citations_are_nobodys_words() -> None:
    """26.C3: the links stay, what only the page of ChatGPT understands does not."""
    path = CASES / "chatgpt_citation_marks_in_memory"
    assert texts(path, chatgpt.read)[1::2] == [
        "assistant: Sunset is at 16:05. ([Almanac](https://almanac.example/riga)) Dress warmly.",
        "assistant: It says four weeks in section 5. See Winter in Riga and Riga.",
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Four\ue200cite\ue202turn0search0\ue201.", "Four."),
        ("Four \ue200cite\ue202turn0sea", "Four"),
        ("Four.\ue203\ue204", "Four."),
        ("\ue200filecite\ue202turn0file0\ue202L8-L12\ue201Four", "Four"),
        ('\ue200image_group\ue202{"query":["a","b"]}\ue201Four', "Four"),
        ("\ue200url\ue202Winter\ue202https://a.example/x\ue201.", "Winter https://a.example/x."),
        ("\ue200i\ue202turn0image0\ue202turn0image12\ue201Four", "Four"),
        ("Four citeturn0search0turn12news3.", "Four."),
        ("Four【10†L1-L3】 and【3†source】 more", "Four and more"),
        ("【注意】four【turn0search3】", "【注意】four"),
        ("Four:contentReference[oaicite:3]{index=3}.", "Four."),
        (':::writing{variant="email" id="1"}\nDear Anna\n:::\nbye', "Dear Anna\nbye"),
        ("An apple \uf8ff and \ue300", "An apple \uf8ff and \ue300"),
        ("See \ue200navlist\ue202Winter\ue202turn0news1,turn0news2, turn0search3\ue201.", "See Winter."),
        ("See [oai_citation:1‡Almanac](https://a.example).", "See [Almanac](https://a.example)."),
        ('It is \ue200genui\ue202{"math_block":{"content":"E=mc^2"}}\ue201.', "It is E=mc^2."),
        ('\ue200genui\ue202{"chart":{"rows":[1]}}\ue201Four', "Four"),
        ('\ue200product_entity\ue202["turn0product1","A lamp"]\ue201', "A lamp"),
        ('\ue200products\ue202{"selections":[["turn0product1","A lamp"]]}\ue201Four', "Four"),
    ],
)
def test_other_marks(text: str, shown: str) -> None:
    assert unmarked(text) == shown


def test_hostile_marks_cost_no_more_than_their_length() -> None:
    """26.C3"""
    for text in ("\ue200" * 300_000, "【" * 300_000, "cite" * 100_000, "【†" * 100_000, "\ue200a\ue202" * 100_000):
        unmarked(text, [{"matched_text": f"\ue200{n}\ue201", "alt": "x"} for n in range(2_000)])


def _without(found: dict[str, Any], *names: str) -> dict[str, Any]:
    for each in found["mapping"].values():
        for name in names:
            each.pop(name, None)
    return found


def test_a_leaf_is_what_is_nobodys_parent(tmp_path: Path) -> None:
    """26.C3: nodes without ``children``, without ``parent``, without both; a current node that is not the last."""
    path = CASES / "chatgpt_last_message_lost"
    assert texts(path, chatgpt.read) == ["user: Name a tree.", "assistant: Oak.", "user: Another?", "assistant: Lime."]
    for names in (("children",), ("parent",), ("children", "parent")):
        for current in (None, "gone", "q1", "root"):
            said = [node(f"q{n}", f"q{n - 1}" if n else "root", "user", f"{n}", None) for n in range(4)]
            found = conversation("c", "t", *said) | {"current_node": current}
            if current is None:
                del found["current_node"]
            path = chatgpt_export(tmp_path, _without(found, *names))
            assert texts(path, chatgpt.read) == [f"user: {n}" for n in range(4)]


def test_a_lost_node_loses_nothing_before_it(tmp_path: Path) -> None:
    said = [node(f"q{n}", f"q{n - 1}" if n else "root", "user", f"{n}", START + n) for n in range(4)]
    found = conversation("c", "t", *said, current="q3")
    del found["mapping"]["q2"]
    assert texts(chatgpt_export(tmp_path, found), chatgpt.read) == ["user: 0", "user: 1", "user: 3"]


def test_what_was_made_for_the_user_is_kept(tmp_path: Path) -> None:
    """26.C3: reports, documents of the canvas, their changes and notes, pictures."""
    assert texts(CASES / "chatgpt_report_and_canvas_lost", chatgpt.read)[2:] == [
        "assistant: # Report\nThe heat pump pays back in nine years.",
        "assistant: # Older report\nThe boiler pays back in four years.",
        "assistant: [document: letter]\nDear landlord, the roof leaks.",
        "assistant: Done, see the letter.",
    ]
    change = '{"updates": [{"pattern": "leaks", "replacement": "leaks badly"}]}'
    drawn = {
        "content_type": "image_asset_pointer",
        "asset_pointer": "sediment://file_1",
        "metadata": {"dalle": {"a": 1}},
    }
    seen = {"content_type": "image_asset_pointer", "asset_pointer": "sediment://file_2"}
    found = conversation(
        "c",
        "t",
        node("a", "root", "assistant", {"content_type": "text", "parts": [change]}, recipient="canmore.update_textdoc"),
        node("b", "a", "assistant", '{"comments": [{"comment": "Too short"}]}', recipient="canmore.comment_textdoc"),
        node("c", "b", "assistant", "no JSON", recipient="canmore.create_textdoc"),
        node("d", "c", "tool", {"content_type": "multimodal_text", "parts": ["It is shown.", drawn]}),
        node("e", "d", "tool", {"content_type": "multimodal_text", "parts": ["of a PDF", seen]}),
    )
    path = chatgpt_export(tmp_path, found)
    assert texts(path, chatgpt.read) == [
        "assistant: [document, changed]\nleaks badly",
        "assistant: [note]\nToo short",
        "assistant: [image: file_1]",
    ]
    assert [each.what for each in events(path, chatgpt.read) if isinstance(each, Unread)] == [
        "conversations.json, chat 1, message c"
    ]


def test_one_conversation_that_stands_alone(tmp_path: Path) -> None:
    for number, found in enumerate((talk("c1", "1", "one"), {"conversations": [talk("c1", "1", "one")]})):
        (tmp_path / f"{number}.json").write_text(json.dumps(found))
        assert texts(tmp_path / f"{number}.json", chatgpt.read) == ["user: one"]


def test_what_people_wrote_themselves_stays_as_it_is(tmp_path: Path) -> None:
    """26.C3: with marks that they ask about, and with what they had marked on the page to ask about it."""
    asked = {"targeted_reply": "By train \ue200cite\ue202turn0search1\ue201."}
    found = conversation(
        "c",
        "t",
        node("q", "root", "user", "What is 【4†source】 in it?"),
        node("a", "q", "assistant", "A page 【4†source】"),
        node("r", "a", "user", "Why?", metadata=asked),
        node("p", "r", "user", "You said: four \ue200cite\ue202turn0search1\ue201 【x】"),
    )
    assert texts(chatgpt_export(tmp_path, found), chatgpt.read) == [
        "user: What is 【4†source】 in it?",
        "assistant: A page",
        "user: > By train.\nWhy?",
        "user: You said: four 【x】",
    ]
