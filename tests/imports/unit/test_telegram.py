"""Exports of Telegram Desktop with their traps."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from klaw.imports import telegram
from klaw.imports.events import ExportedChat, ExportedMessage, ImportRefused, LeftOut, Unread
from tests.support.exports import CASES, Read, events, texts

BERLIN = ZoneInfo("Europe/Berlin")
DACHA: dict[str, Any] = {"kind": "private_group", "name": "Дача", "of": 50}


def reading(me: str | None = None) -> Read:
    return partial(telegram.read, me=me, zone=BERLIN)


def message(number: int, sender: str, text: Any, of: int = 7, **more: Any) -> dict[str, Any]:
    said = {"id": number, "type": "message", "date": "2024-03-05T10:00:00", "from": sender, "from_id": f"user{of}"}
    return {**said, "text": text, **more}


def chat(*messages: Any, kind: str = "personal_chat", name: str | None = "Анна", of: int = 7) -> dict[str, Any]:
    return {"name": name, "type": kind, "id": of, "messages": list(messages)}


def written(folder: Path, document: Any) -> Path:
    (folder / "result.json").write_text(json.dumps(document, ensure_ascii=False))
    return folder


def account(*chats: Any, left: Any = ()) -> dict[str, Any]:
    about = {"user_id": 1, "first_name": "Пётр"}
    return {
        "about": "x",
        "personal_information": about,
        "contacts": {"list": [{"name": "x", "id": 5, "type": "y"}]},
        "chats": {"about": "x", "list": list(chats)},
        "left_chats": {"about": "x", "list": list(left)},
    }


def test_texts_in_both_forms_and_what_is_no_text(tmp_path: Path) -> None:
    link = {"type": "text_link", "text": "it", "href": "https://c"}
    linked = ["See ", {"type": "link", "text": "https://a.b"}, link]
    absent = "(File not included. Change data exporting settings to download.)"
    found = chat(
        {"id": 1, "type": "service", "date": "2024-03-05T10:00:00", "action": "phone_call", "text": ""},
        message(2, "Анна", "Привет", date_unixtime="1709629200"),
        message(3, "Пётр", linked, of=1),
        message(4, "Анна", "", photo="photos/photo_1.jpg"),
        message(5, "Анна", "", file=absent, media_type="voice_message"),
        message(6, "Пётр", "look", of=1, file="files/план.pdf", file_name="план.pdf", forwarded_from="Олег"),
        message(7, "Анна", "", poll={"question": "Когда?"}),
        message(8, "Анна", ""),
    )
    path = written(tmp_path, found)
    found_events = events(path, reading())
    assert found_events[:2] == [ExportedChat(key="7", title="Анна", people=True), LeftOut("notices")]
    said = [each for each in found_events if isinstance(each, ExportedMessage)]
    assert [f"{each.role}: {each.text}" for each in said] == [
        "assistant: Анна: Привет",
        "user: See https://a.bit (https://c)",
        "assistant: Анна: [photo: photo_1.jpg]",
        "assistant: Анна: [voice message]",
        "user: [forwarded from Олег]\n[file: план.pdf]\nlook",
        "assistant: Анна: [poll: Когда?]",
    ]
    assert [each.at for each in said[:2]] == ["2024-03-05T09:00:00.000Z", "2024-03-05T09:00:00.000Z"]


def test_a_whole_account_knows_whose_it_is(tmp_path: Path) -> None:
    group = chat(
        message(1, "Пётр", "всем привет", of=1),
        message(2, "Олег", "hi", of=9),
        kind="private_group",
        name="Дача",
        of=50,
    )
    saved = chat(message(1, "Пётр", "note to self", of=1), kind="saved_messages", name=None, of=1)
    news = chat(message(1, "Z", "left", of=3), kind="public_channel", name="News", of=60)
    gone = chat(message(1, "x", "bye") | {"from": None}, name=None, of=8)
    path = written(tmp_path, account(group, saved, gone, chat(), left=[news]))
    found = events(path, reading())
    assert [each.title for each in found if isinstance(each, ExportedChat)] == [
        "Дача",
        "Saved messages",
        "Deleted account 8",
        "News",
    ]
    assert texts(path, reading()) == [
        "user: всем привет",
        "assistant: Олег: hi",
        "user: note to self",
        "assistant: Deleted account: bye",
        "assistant: Z: left",
    ]


def test_a_group_alone_asks_who_somebody_is(tmp_path: Path) -> None:
    group = chat(
        message(1, "Пётр", "да", of=1), message(2, "Олег", "hi", of=9), kind="private_group", name="Дача", of=50
    )
    path = written(tmp_path, group)
    with pytest.raises(ImportRefused, match="give --me NAME; in it are Пётр, Олег"):
        events(path, reading())
    assert texts(path, reading("пётр")) == ["user: да", "assistant: Олег: hi"]
    assert texts(path, reading("user9")) == ["assistant: Пётр: да", "user: hi"]


@pytest.mark.parametrize("bad", [None, 5, {"type": "message", "text": "x"}, {"type": "message", "id": 1, "text": [5]}])
def test_one_bad_message_does_not_stop_the_rest(tmp_path: Path, bad: Any) -> None:
    path = written(tmp_path, account(chat(message(1, "Анна", "one"), bad, message(3, "Анна", "два"))))
    assert texts(path, reading()) == ["assistant: Анна: one", "assistant: Анна: два"]
    assert len([each for each in events(path, reading()) if isinstance(each, Unread)]) == 1


def test_what_is_cut_off_is_read_up_to_there(tmp_path: Path) -> None:
    path = written(tmp_path, account(chat(message(1, "Анна", "one"), message(2, "Анна", "two"))))
    text = (path / "result.json").read_text()
    (path / "result.json").write_text(text[: text.index("two")])
    assert texts(path, reading()) == ["assistant: Анна: one"]
    assert [each.what for each in events(path, reading()) if isinstance(each, Unread)] == [
        "result.json, after message 1 of Анна"
    ]


@pytest.mark.parametrize("case", ["one_bad_escape", "unquoted_value"])
def test_one_damaged_message_is_named_and_the_rest_is_read(case: str) -> None:
    """26.C3"""
    found = events(CASES / f"telegram_{case}_loses_the_rest", partial(telegram.read, me=None, zone=BERLIN))
    assert [each.what for each in found if isinstance(each, Unread)] == ["Boris, message 2"]
    said = [each.text for each in found if isinstance(each, ExportedMessage)]
    assert said[1] in ("Thanks, I bought it.", "Indeed.")
    assert (len(said), len([each for each in found if isinstance(each, ExportedChat)])) == (3, 1)


_DAMAGE: dict[str, Callable[[str], str]] = {
    "an escape": lambda text: text.replace("BAD", "\\x0B"),
    "no quotation mark behind": lambda text: text.replace('BAD"', "BAD"),
    "no quotation marks": lambda text: text.replace('"BAD"', "a ]}, [{ b"),
    "no colon": lambda text: text.replace('"text": "BAD"', '"text" "BAD"'),
    "a bracket": lambda text: text.replace('"BAD"', "[}"),
}


@pytest.mark.parametrize("damage", _DAMAGE)
@pytest.mark.parametrize("number", [0, 1, 2])
def test_damage_in_one_chat_of_several(tmp_path: Path, damage: str, number: int) -> None:
    """26.C3: in the first message, in one between, and in the last, behind which the next chat begins."""
    texts_ = [["one", "two", "three"], ["four", "five", "six"], ["seven"]]
    texts_[1][number] = "BAD"
    chats = [
        chat(*(message(n, "Анна", text) for n, text in enumerate(said)), name=f"{at}", of=7)
        for at, said in enumerate(texts_)
    ]
    path = written(tmp_path, account(*chats[:2], left=[chats[2]]))
    (path / "result.json").write_text(_DAMAGE[damage]((path / "result.json").read_text()))
    found = events(path, reading())
    assert [each.title for each in found if isinstance(each, ExportedChat)] == ["0", "1", "2"]
    said = [each.text.removeprefix("Анна: ") for each in found if isinstance(each, ExportedMessage)]
    assert said == [each for part in texts_ for each in part if each != "BAD"]
    assert [each.what for each in found if isinstance(each, Unread)] == [f"1, message {number}"]


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda text: text.replace('"x", "id": 5', '"\\q", "id": 5'), "result.json"),
        (lambda text: text.replace('"name": "Анна"', '"name": "Ан\\x0Bна"'), "result.json"),
        (lambda text: text.replace("one", "o\nn\te"), "result.json"),
    ],
)
def test_damage_beside_the_messages(tmp_path: Path, damage: Callable[[str], str], named: str) -> None:
    """A contact, a chat's name, a line end within a text: all messages are read."""
    path = written(tmp_path, account(chat(message(1, "Анна", "one"), message(2, "Пётр", "two", of=1))))
    (path / "result.json").write_text(damage((path / "result.json").read_text()))
    found = events(path, reading())
    assert [each.role for each in found if isinstance(each, ExportedMessage)] == ["assistant", "user"]
    assert [each.what for each in found if isinstance(each, Unread)] == [named]


def test_bytes_that_are_no_text_cost_no_message(tmp_path: Path) -> None:
    path = written(tmp_path, chat(message(1, "Анна", "BAD"), message(2, "Анна", "two")))
    (path / "result.json").write_bytes((path / "result.json").read_bytes().replace(b"BAD", b"a\xffb"))
    assert texts(path, reading()) == ["assistant: Анна: a\ufffdb", "assistant: Анна: two"]


def test_a_large_damaged_export_is_read_in_linear_time(tmp_path: Path) -> None:
    """The parts of it that lie in the buffer are not copied for each message."""
    said = [message(n, "Анна", "BAD" if n == 5_000 else f"{n} " * 50) for n in range(30_000)]
    path = written(tmp_path, chat(*said))
    (path / "result.json").write_text((path / "result.json").read_text().replace("BAD", "\\x0B"))
    assert len(texts(path, reading())) == 29_999


def test_all_that_is_no_text_is_told_as_text_or_counted() -> None:
    """26.C3"""
    found = events(CASES / "telegram_things_dropped_silently", partial(telegram.read, me=None, zone=BERLIN))
    assert [each.text for each in found if isinstance(each, ExportedMessage)] == [
        "Boris: [poll: Where do we meet?]\n- At the lake (2, chosen)\n- In town (0)",
        "Boris: [place: Café Osiris, Barona 31, Riga, 56.95, 24.12]",
        "Boris: [contact: Cora Doe +000 1]",
        "Boris: [to-do list: For the trip]\n- Buy tent pegs\n- Book ferry",
        "Boris: [game: Chess, Play]",
        "Boris: [invoice: Tickets, 2 seats, 10.00 EUR]",
        "Boris: [file: lease.pdf]",
        "Boris: Who am I?",
        "Boris: Answered.",
        "[forwarded from a deleted account]\nFwd text",
        "here (https://a.example/x) secretCora",
        "Boris: [voice message: audio_1.ogg]",
        "Boris: [dice: 🎲 5]",
    ]
    assert [each.why for each in found if isinstance(each, LeftOut)] == [
        "not exported by Telegram",
        "of the kind story",
    ]


def test_changes_of_a_to_do_list_are_told(tmp_path: Path) -> None:
    def notice(number: int, action: str, **more: Any) -> dict[str, Any]:
        about = {"date_unixtime": "1709629200", "actor": "Анна", "actor_id": "user7", "text": "", "action": action}
        return {"id": number, "type": "service", **about, **more}

    path = written(
        tmp_path,
        chat(
            message(1, "Пётр", "", of=1, todo_list={"title": "Trip", "answers": [{"id": 1, "text": "Buy pegs"}]}),
            notice(2, "todo_append_tasks", items=[{"id": 2, "text": [{"type": "bold", "text": "Book"}, " ferry"]}]),
            notice(3, "todo_completions", completed=[1, 9], incompleted=[2]),
            notice(4, "send_star_gift", gift_text="Happy birthday", stars=5),
            notice(5, "pin_message", message_id=1),
        ),
    )
    assert texts(path, reading()) == [
        "user: [to-do list: Trip]\n- Buy pegs",
        "assistant: Анна: [to-do list: changed]\n- Book ferry",
        "assistant: Анна: [to-do list: changed]\n- Buy pegs (done)\n- 9 (done)\n- Book ferry",
        "assistant: Анна: Happy birthday",
    ]
    assert events(path, reading())[-1] == LeftOut("notices")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"file": "(File not included.)", "media_type": "sticker", "sticker_emoji": "😀"}, "[sticker: 😀]"),
        ({"file": "a/b.mp3", "media_type": "audio_file", "performer": "A", "title": "B"}, "[audio file: A – B]"),
        ({"giveaway_information": {"quantity": 5, "additional_prize": "a mug"}}, "[giveaway: quantity 5, a mug]"),
        (
            {"todo_list": {"title": [{"type": "bold", "text": "T"}], "answers": [{"text": "a", "completed": 1}]}},
            "[to-do list: T]\n- a (done)",
        ),
        ({"invoice_information": {"title": "T", "amount": 5, "currency": "JPY"}}, "[invoice: T, 5 JPY]"),
        ({"something_new": {"a": {"b": "words"}, "c": True}}, "[something new: words]"),
        ({"something_new": {"a": 5}, "text": "t"}, "t"),
    ],
)
def test_other_content(tmp_path: Path, given: dict[str, Any], said: str) -> None:
    path = written(tmp_path, chat(message(1, "Анна", "") | given))
    assert texts(path, reading()) == [f"assistant: Анна: {said}"]
