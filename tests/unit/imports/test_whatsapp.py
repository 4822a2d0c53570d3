"""Chats of WhatsApp as telephones of several countries write them."""

from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from klaw.imports import whatsapp
from klaw.imports.events import Chat, ImportRefused, LeftOut, Message, Unread
from klaw.imports.whatsapp import Order
from tests.support.exports import Read, events, texts, zipped

ANDROID = """\
12.03.2024, 14:05 - Сообщения и звонки защищены сквозным шифрованием.
12.03.2024, 14:05 - Анна: Привет
как дела?

13/4 будет праздник
12.03.2024, 14:06 - Пётр: Хорошо: всё есть
13.03.2024, 00:00 - Анна: IMG-1.jpg (файл добавлен)
подпись
"""
IPHONE = (
    "\u200e[3/12/24, 2:05:33\u202fPM] Anna: \u200eMessages and calls are end-to-end encrypted.\r\n"
    "[3/12/24, 2:05:33\u202fPM] Anna: Hello\r\n"
    "\u200e[3/13/24, 12:00:01\u202fAM] ~\u202fPeter: \u200e<attached: 0001-PHOTO.jpg>\r\n"
    "[3/13/24, 12:30:01\u202fPM] Anna: noon\r\n"
)


def reading(me: str | None = None, order: Order | None = None, title: str | None = None) -> Read:
    return partial(whatsapp.read, me=me, order=order, zone=ZoneInfo("Europe/Berlin"), title=title)


def test_android_in_russian(tmp_path: Path) -> None:
    path = tmp_path / "Чат WhatsApp с Анна.txt"
    path.write_text(ANDROID)
    found = events(path, reading())
    assert found[:2] == [Chat(key="анна", title="Анна", people=True), LeftOut("notices")]
    said = [each for each in found if isinstance(each, Message)]
    assert [(f"{each.role}: {each.text}", each.at) for each in said] == [
        ("assistant: Анна: Привет\nкак дела?\n\n13/4 будет праздник", "2024-03-12T13:05:00.000Z"),
        ("user: Хорошо: всё есть", "2024-03-12T13:06:00.000Z"),
        ("assistant: Анна: [file: IMG-1.jpg]\nподпись", "2024-03-12T23:00:00.000Z"),
    ]


def test_an_american_iphone(tmp_path: Path) -> None:
    path = zipped(tmp_path / "WhatsApp Chat - Anna (2).zip", _chat__txt=IPHONE)
    found = events(path, reading())
    assert found[0] == Chat(key="anna", title="Anna", people=True)
    assert [(f"{each.role}: {each.text}", each.at) for each in found if isinstance(each, Message)] == [
        ("assistant: Anna: Hello", "2024-03-12T13:05:33.000Z"),
        ("user: [file: 0001-PHOTO.jpg]", "2024-03-12T23:00:01.000Z"),
        ("assistant: Anna: noon", "2024-03-13T11:30:01.000Z"),
    ]


@pytest.mark.parametrize(
    ("lines", "at"),
    [
        (("25/01/2024, 10:00 - A: x", "26/01/2024, 10:00 - B: y"), "2024-01-25"),
        (("1/25/24, 10:00 - A: x", "1/26/24, 10:00 - B: y"), "2024-01-25"),
        (("2024-01-25, 10:00 - A: x", "2024-01-26, 10:00 - B: y"), "2024-01-25"),
        (("1.2.24, 10:00 - A: x", "2.2.24, 10:00 - B: y"), "2024-02-01"),
        # Read as month/day the third would be before the second.
        (("1/3/24, 10:00 - A: x", "10/3/24, 10:00 - B: y", "2/4/24, 10:00 - B: z"), "2024-03-01"),
        (("[1.3.24 10.00.05] A: x", "[13.3.24 10.00.05] B: y"), "2024-03-01"),
    ],
)
def test_the_order_of_a_date_is_told_by_the_whole_file(tmp_path: Path, lines: tuple[str, ...], at: str) -> None:
    (tmp_path / "_chat.txt").write_text("\n".join(lines))
    found = [each for each in events(tmp_path / "_chat.txt", reading("A")) if isinstance(each, Message)]
    assert (found[0].at[:10], len(found)) == (at, len(lines))


def test_an_order_that_cannot_be_told_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "_chat.txt").write_text("1/2/24, 10:00 - A: x\n3/4/24, 10:00 - B: y\n")
    with pytest.raises(ImportRefused, match="give --dates dmy or mdy"):
        events(tmp_path / "_chat.txt", reading("A"))
    found = [
        [each.at[:10] for each in events(tmp_path / "_chat.txt", reading("A", order)) if isinstance(each, Message)]
        for order in ("dmy", "mdy")
    ]
    assert found == [["2024-02-01", "2024-04-03"], ["2024-01-02", "2024-03-04"]]
    (tmp_path / "_chat.txt").write_text("13/2/24, 10:00 - A: x\n3/14/24, 10:00 - B: y\n")
    with pytest.raises(ImportRefused, match="its dates cannot be read"):
        events(tmp_path / "_chat.txt", reading("A"))


def test_who_somebody_is_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "_chat.txt"
    path.write_text("25.1.24, 10:00 - A: x\n25.1.24, 10:01 - Б: y\n25.1.24, 10:01 - C: y\n")
    with pytest.raises(ImportRefused, match="Give --me NAME; in it are A, Б, C"):
        events(path, reading())
    with pytest.raises(ImportRefused, match="nobody is called so in it: give --me one of A, Б, C"):
        events(path, reading("D"))
    assert texts(path, reading("б", title="Дача")) == ["assistant: A: x", "user: y", "assistant: C: y"]
    assert events(path, reading("б", title="Дача"))[0] == Chat(key="дача", title="Дача", people=True)


def test_the_same_twice_in_a_minute_is_two_messages(tmp_path: Path) -> None:
    (tmp_path / "_chat.txt").write_text("25.1.24, 10:00 - A: да\n25.1.24, 10:00 - A: да\n25.1.24, 10:00 - B: да\n")
    keys = [each.key for each in events(tmp_path / "_chat.txt", reading("A")) if isinstance(each, Message)]
    assert len(set(keys)) == 3


def test_a_text_that_is_no_chat_is_named(tmp_path: Path) -> None:
    path = zipped(tmp_path / "x.zip", _chat__txt="25.1.24, 10:00 - A: x\n", chat_notes__txt="nothing")
    assert [each for each in events(path, reading("A")) if isinstance(each, Unread)] == [
        Unread("chat_notes.txt", "has no message of WhatsApp in it")
    ]
