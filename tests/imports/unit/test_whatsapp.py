"""Chats of WhatsApp as telephones of several countries write them."""

import datetime as dt
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from klaw.imports import whatsapp
from klaw.imports.events import ExportedChat, ExportedMessage, ImportRefused, LeftOut, Unread
from klaw.imports.whatsapp_format import Order, stamp
from tests.support.exports import CASES, Read, events, texts, zipped
from tools import cldr_words

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
    assert found[:2] == [ExportedChat(key="анна", title="Анна", people=True), LeftOut("notices")]
    said = [each for each in found if isinstance(each, ExportedMessage)]
    assert [(f"{each.role}: {each.text}", each.at) for each in said] == [
        ("assistant: Анна: Привет\nкак дела?\n\n13/4 будет праздник", "2024-03-12T13:05:00.000Z"),
        ("user: Хорошо: всё есть", "2024-03-12T13:06:00.000Z"),
        ("assistant: Анна: [file: IMG-1.jpg]\nподпись", "2024-03-12T23:00:00.000Z"),
    ]


def test_an_american_iphone(tmp_path: Path) -> None:
    path = zipped(tmp_path / "WhatsApp Chat - Anna (2).zip", _chat__txt=IPHONE)
    found = events(path, reading())
    assert found[0] == ExportedChat(key="anna", title="Anna", people=True)
    assert [(f"{each.role}: {each.text}", each.at) for each in found if isinstance(each, ExportedMessage)] == [
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
    found = [each for each in events(tmp_path / "_chat.txt", reading("A")) if isinstance(each, ExportedMessage)]
    assert (found[0].at[:10], len(found)) == (at, len(lines))


def test_an_order_that_cannot_be_told_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "_chat.txt").write_text("1/2/24, 10:00 - A: x\n3/4/24, 10:00 - B: y\n")
    with pytest.raises(ImportRefused, match="give --dates dmy or mdy"):
        events(tmp_path / "_chat.txt", reading("A"))
    found = [
        [
            each.at[:10]
            for each in events(tmp_path / "_chat.txt", reading("A", order))
            if isinstance(each, ExportedMessage)
        ]
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
    with pytest.raises(ImportRefused, match="nobody in it has that name: give --me one of A, Б, C"):
        events(path, reading("D"))
    assert texts(path, reading("б", title="Дача")) == ["assistant: A: x", "user: y", "assistant: C: y"]
    assert events(path, reading("б", title="Дача"))[0] == ExportedChat(key="дача", title="Дача", people=True)


def test_the_same_twice_in_a_minute_is_two_messages(tmp_path: Path) -> None:
    (tmp_path / "_chat.txt").write_text("25.1.24, 10:00 - A: да\n25.1.24, 10:00 - A: да\n25.1.24, 10:00 - B: да\n")
    keys = [each.key for each in events(tmp_path / "_chat.txt", reading("A")) if isinstance(each, ExportedMessage)]
    assert len(set(keys)) == 3


def test_a_text_that_is_no_chat_is_named(tmp_path: Path) -> None:
    path = zipped(tmp_path / "x.zip", _chat__txt="25.1.24, 10:00 - A: x\n", chat_notes__txt="nothing")
    assert [each for each in events(path, reading("A")) if isinstance(each, Unread)] == [
        Unread("chat_notes.txt", "contains no WhatsApp message")
    ]


def said(path: Path, me: str | None = None) -> list[str]:
    """Times and texts, of a telephone in UTC."""
    read = partial(whatsapp.read, me=me, order=None, zone=ZoneInfo("UTC"), title=None)
    return [f"{each.at[:19]} {each.text}" for each in events(path, read) if isinstance(each, ExportedMessage)]


@pytest.mark.parametrize("case", sorted(each.name for each in (CASES / "whatsapp_dates_not_read").iterdir()))
def test_dates_of_other_countries(case: str) -> None:
    """26.C3"""
    found = said(CASES / "whatsapp_dates_not_read" / case / "WhatsApp Chat with Boris.txt")
    assert [each[:16] for each in found] == ["2026-03-01T15:04", "2026-03-01T15:05", "2026-03-21T09:05"]
    assert ["Boris: " in each for each in found] == [False, True, False]


MOMENTS = [dt.datetime.fromisoformat(f"2026-03-{each}") for each in ("01T15:04:05", "21T09:05:00", "22T00:07:01")]
MOMENTS += [MOMENTS[2].replace(hour=12), MOMENTS[2].replace(day=31, hour=23, minute=59)]


@pytest.mark.parametrize("locale", cldr_words.APPS)
def test_dates_of_every_locale_that_the_apps_have(tmp_path: Path, locale: str) -> None:
    """26.C3: on Android and on the iPhone, with either clock, parts of the day, short and full years and the digits
    that the language has."""
    forms: dict[str, list[str]] = {}
    for form, text in (each for moment in MOMENTS for each in cldr_words.stamps(locale, moment)):
        forms.setdefault(form, []).append(text)
    assert len(forms) >= 8
    path = tmp_path / "_chat.txt"
    for form, stamps in forms.items():
        path.write_text("\n".join(f"{each}{name}: x" for each in stamps for name in ("Anna", "Boris")))
        read = said(path, "Anna")
        times = [f"{moment:%Y-%m-%dT%H:%M}" for moment in MOMENTS for _ in range(2)]
        assert [each[:16] for each in read] == times, (form, stamps)
        assert [each[20:] for each in read] == ["x", "Boris: x"] * len(MOMENTS), (form, stamps)


def test_the_table_of_words_is_what_the_tool_makes() -> None:
    assert cldr_words.written(cldr_words.table()) == cldr_words.TABLE.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("written", "at"),
    [
        ("21/3/2569 09:05", "2026-03-21T09:05"),
        ("21/3/69 09:05", "2026-03-21T09:05"),
        ("๒๑/๓/๒๕๖๙ ๐๙:๐๕", "2026-03-21T09:05"),
        ("۱۴۰۵/۱/۱، ۹:۰۵ ق.ظ.", "2026-03-21T09:05"),
        ("1403/12/30, 09:05", "2025-03-20T09:05"),
        ("令和8年3月21日 9:05", "2026-03-21T09:05"),
        ("115/3/21 上午9:05", "2026-03-21T09:05"),
        ("民國115年3月21日 晚上9:05", "2026-03-21T21:05"),
        ("2026年3月21日 凌晨12:05", "2026-03-21T00:05"),
        ("2026年3月21日下午9:05", "2026-03-21T21:05"),
        ("26. 3. 21. 오후 9:05", "2026-03-21T21:05"),
        ("26/3/21 09:05", "2026-03-21T09:05"),
        # As telephones wrote before Unicode's CLDR changed it.
        ("21.3.2026, 9:05 אחה״צ", "2026-03-21T21:05"),
        ("21.3.2026, 12:05 לפנה״צ", "2026-03-21T00:05"),
        ("21/3/2026 9:05 ಅಪರಾಹ್ನ", "2026-03-21T21:05"),
        ("3/21/26, 12:05 at night", "2026-03-21T00:05"),
        ("2026-03-21 9 h 05 min 07 s p.m.", "2026-03-21T21:05"),
        ("21.3.2026 klo 9.05", "2026-03-21T09:05"),
        ("21.03.2026 kl. 09.05.07", "2026-03-21T09:05"),
        ("09:05, 21/3/2026", "2026-03-21T09:05"),
        ("21/3/2026, 9:05 a.\u202fm.", "2026-03-21T09:05"),
        ("21/3/2026, 9:05 p.\u00a0m.", "2026-03-21T21:05"),
        ("21/3/2026 à 9 h 05", "2026-03-21T09:05"),
        ("21/3/2026 9:05 da noite", "2026-03-21T21:05"),
        ("3/21/26, 9:05 at night", "2026-03-21T21:05"),
        ("2026/03/21, 09:05", "2026-03-21T09:05"),
        ("Sat, 21.3.2026, 9:05", "2026-03-21T09:05"),
        ("1447/9/2, 9:05", None),
        ("3.4.5 - 2", None),
        ("1.3.2026 at 9:05 in the very long meeting room of ours", None),
    ],
)
def test_other_calendars_and_words(written: str, at: str | None) -> None:
    found = stamp(written)
    read = found and next(
        (when for order in ("ymd", "dmy", "mdy") if (when := found.at(order)) and when.year > 2009), None
    )
    assert (read and read.isoformat()[:16]) == at


def test_two_digits_of_a_year_that_stands_first(tmp_path: Path) -> None:
    """Read as a day it would make two neighbours years apart; else the day stands first, as with most."""
    path = tmp_path / "_chat.txt"
    path.write_text("26/3/12, 10:00 - A: x\n26/3/13, 10:00 - B: y\n")
    assert [each[:10] for each in said(path, "A")] == ["2026-03-12", "2026-03-13"]
    path.write_text("12.03.24, 10:00 - A: x\n13.03.24, 10:00 - B: y\n")
    assert [each[:10] for each in said(path, "A")] == ["2024-03-12", "2024-03-13"]


def test_words_of_times_that_are_not_known_are_named(tmp_path: Path) -> None:
    path = tmp_path / "_chat.txt"
    path.write_text("13/01/2026 3:04 UTO - A: x\n13/01/2026 9:05 KIX - A: y\n[13/01/2026 9:05 KIX] A: pasted\n")
    (unread,) = (each for each in events(path, reading("A")) if isinstance(each, Unread))
    assert unread.why.startswith("1 lines begin with a time in unknown words")


def test_notices_are_nobodys_words() -> None:
    """26.C3: on an iPhone they stand behind U+200E, under the name of a person or of the group."""
    path = CASES / "whatsapp_notices_as_words"
    assert [each[20:] for each in said(path, "Anna")] == ["Boris: We meet at nine.", "Good.", "Boris: At ten, rather."]
    found = events(path, reading("Anna"))
    assert found[0] == ExportedChat(key="hiking club", title="Hiking club", people=True)
    assert len([each for each in found if isinstance(each, LeftOut)]) == 9
    with pytest.raises(ImportRefused, match=r"in it are Boris, Anna$"):
        events(path, reading())


def test_a_group_may_have_a_colon_in_its_name(tmp_path: Path) -> None:
    path = tmp_path / "_chat.txt"
    lines = ("Trip: Riga: \u200eMessages and calls are end-to-end encrypted.", "Trip: Riga: \u200eБорис добавил вас")
    lines += ("Boris: We meet: at nine.", "Anna: Look: \u200eimage omitted", "Anna: See: \u200e<attached: 1.jpg>")
    path.write_text("".join(f"[14.08.2026, 21:00:1{n}] {line}\n" for n, line in enumerate(lines)))
    assert [each[20:] for each in said(path, "Anna")] == ["Boris: We meet: at nine.", "Look:", "See: [file: 1.jpg]"]
    assert events(path, reading("Anna"))[0] == ExportedChat(key="trip: riga", title="Trip: Riga", people=True)


@pytest.mark.parametrize(
    "name",
    [
        "محادثة واتساب مع Boris",
        "与Boris的WhatsApp聊天",
        "Boris님과의 WhatsApp 대화",
        "Boris ile WhatsApp Sohbeti",
        "Czat WhatsApp z Boris",
        "WhatsApp Chat with Boris",
    ],
)
def test_the_name_of_the_file_tells_who_is_who_in_any_language(tmp_path: Path, name: str) -> None:
    lines = "14/08/2026, 21:00 - Boris: one\n14/08/2026, 21:01 - Anna: two\n"
    (tmp_path / f"{name}.txt").write_text(lines)
    for path in (tmp_path / f"{name}.txt", zipped(tmp_path / "x.zip", **{f"{name}__txt": lines})):
        assert [each[20:] for each in said(path)] == ["Boris: one", "two"]
        assert events(path, reading())[0] == ExportedChat(key="boris", title="Boris", people=True)


@pytest.mark.parametrize("name", ["_chat", "WhatsApp Chat", "Annas Gruppe", "Anna und Boris"])
def test_a_name_within_a_word_or_beside_another_tells_nothing(tmp_path: Path, name: str) -> None:
    path = tmp_path / f"{name}.txt"
    path.write_text("14/08/2026, 21:00 - Anna: one\n14/08/2026, 21:01 - Boris: two\n")
    with pytest.raises(ImportRefused, match="who are you"):
        events(path, reading())


def test_a_notice_with_a_colon_is_no_sender() -> None:
    """26.C3"""
    path = CASES / "whatsapp_notice_with_colon_is_a_sender"
    assert [each[20:] for each in said(path)] == ["Boris: We meet at nine.", "Good."]


@pytest.mark.parametrize(
    "notice",
    [
        'Boris changed the subject from "Trip: Riga" to "Trip: Oslo"',
        "Boris changed the subject to “Trip: Oslo”",
        "Борис изменил(а) тему на «Поездка: Осло»",
        "Boris hat den Betreff zu „Reise: Oslo“ geändert",
        "You created group “Trip: Riga”",
        "Boris hat die selbstlöschenden Nachrichten geändert: neue Nachrichten verschwinden nach 90 Tagen",
        "Boris cambió los mensajes temporales: los mensajes nuevos desaparecerán",
        "Boris zrobił coś zupełnie nowego: a tego nikt nie zna",
        "Boris's security code changed: tap to learn more",
        "Вы изменили настройки группы: теперь пишут все",
        'Boris changed the group name from "Trip: x" to "Trip: y"',
        "Boris a changé le sujet de “A” à “B : C”",
        'Boris cambió el asunto de "A: b" a "C: d"',
        'Boris tarafından konu "A: b" iken "C: d" olarak değiştirildi',
        "Boris が件名を「A: b」から「C: d」に変更しました",
        "Boris 将主题从“A：b”改为“C: d”",
        "Messages and calls are end-to-end encrypted. Note: only people in this chat can read",
        "This chat is with a business account: tap to learn more",
        "Video call started: tap to join",
    ],
)
def test_notices_with_colons_in_several_languages(tmp_path: Path, notice: str) -> None:
    path = tmp_path / "_chat.txt"
    names = ("Anna Maria", "Anna Maria von der Heide", "Anna :)", "Du Thi Lan", "The group")
    lines = ["Boris: one", notice, "Anna: two", "Boris: three", "Anna: four", *(f"{each}: five" for each in names)]
    path.write_text("".join(f"14/08/2026, 21:0{n} - {line}\n" for n, line in enumerate(lines)))
    assert [each[20:] for each in said(path, "Anna")] == [
        "Boris: one",
        "two",
        "Boris: three",
        "four",
        *(f"{each}: five" for each in names),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "<Media omitted>",
        "<Без медиафайлов>",
        "<Medien ausgeschlossen>",
        "<Multimedia omitido>",
        "<Médias omis>",
        "<미디어 파일 제외됨>",
        "<メディアなし>",
        "<省略多媒体文件>",
        "<تم استبعاد الوسائط>",
        "<המדיה לא נכללה>",
        "<मीडिया के बिना>",
        "<ไฟล์สื่อถูกลบ>",
        "<View once message omitted>",
        "<Пропуснати медийни файлове>",
        "<मीडिया शामिल नहीं है>",
        "You received a view once message. For added privacy, you can only open it on your phone.",
        "Это сообщение удалил админ Кора",
        "video note omitted",
        "<bỏ qua tệp phương tiện>",
        "<Pominięto multimedia>",
        "<Medya dahil edilmedi>",
        "This message was deleted",
        "You deleted this message.",
        "Данное сообщение удалено",
        "Diese Nachricht wurde gelöscht.",
        "Se eliminó este mensaje.",
        "تم حذف هذه الرسالة",
        "이 메시지는 삭제되었습니다.",
        "此消息已删除。",
        "image omitted",
        "<Arquivo de mídia oculto>",
        "Missed voice call",
        "Пропущенный видеозвонок",
        "Waiting for this message. This may take a while.",
        "Ожидание данного сообщения. Это может занять время.",
        "null",
    ],
)
def test_what_stands_for_a_message_is_nobodys_word(tmp_path: Path, text: str) -> None:
    """26.C3: on Android, where no mark tells it."""
    path = tmp_path / "_chat.txt"
    path.write_text(f"14/08/2026, 21:00 - Anna: {text}\n14/08/2026, 21:01 - Boris: hi\n")
    assert [each[20:] for each in said(path, "Anna")] == ["Boris: hi"]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("<Media omitted>\nthe caption", "the caption"),
        ("At ten. <This message was edited>", "At ten."),
        ("В десять. <Сообщение изменено>", "В десять."),
        ("Um zehn. <Diese Nachricht wurde bearbeitet.>", "Um zehn."),
        ("a <b> c <tag>", "a <b> c <tag>"),
        ("<3", "<3"),
        ("null and void", "null and void"),
        ("Null", "Null"),
        ("Is it end-to-end encrypted?", "Is it end-to-end encrypted?"),
        ("I deleted this message was deleted", "I deleted this message was deleted"),
        ("POLL:\nWhere?\nOPTION: Lake (2 votes)", "POLL:\nWhere?\nOPTION: Lake (2 votes)"),
        ("location: https://maps.google.com/?q=1,2", "location: https://maps.google.com/?q=1,2"),
        ("IMG-20260814-WA0001.jpg (kaust on lisatud)", "[file: IMG-20260814-WA0001.jpg]"),
        ("\u200eplan.pdf (zzz yyy)\nread it", "[file: plan.pdf]\nread it"),
    ],
)
def test_what_people_say_on_android(tmp_path: Path, text: str, kept: str) -> None:
    path = tmp_path / "_chat.txt"
    path.write_text(f"14/08/2026, 21:00 - Anna: {text}\n14/08/2026, 21:01 - Boris: hi\n")
    assert [each[20:] for each in said(path, "Anna")] == [kept, "Boris: hi"]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("\u200eбилиберда на неизвестном языке", None),
        ("\u200eimage omitted", None),
        ("\u200eimage omitted\nthe caption", "the caption"),
        ("the caption \u200eimage omitted", "the caption"),
        ("the caption \u200e<xyz: 00000007-PHOTO.jpg>", "the caption [file: 00000007-PHOTO.jpg]"),
        ("lease.pdf • \u200e3 pages \u200edocument omitted", "[file: lease.pdf]"),
        ("\u200elease.pdf • \u200e3 Seiten \u200eDokument weggelassen", "[file: lease.pdf]"),
        ("lease.pdf • \u200e3 pages \u200e<attached: 00000008-lease.pdf>", "[file: 00000008-lease.pdf]"),
        ("\u200eUMFRAGE:\nWo?\n\u200eOPTION: See (\u200e2 Stimmen)", "UMFRAGE:\nWo?\nOPTION: See (2 Stimmen)"),
        ("\u200eStandort: https://maps.google.com/?q=1,2", "Standort: https://maps.google.com/?q=1,2"),
        ("At ten \u200e<zzz yyy>", "At ten"),
        ("call \u2068Boris\u2069 and\u200e go", "call Boris and go"),
    ],
)
def test_what_people_say_on_an_iphone(tmp_path: Path, text: str, kept: str | None) -> None:
    path = tmp_path / "_chat.txt"
    path.write_text(f"[14.08.2026, 21:00:01] Anna: {text}\r\n[14.08.2026, 21:01:02] Boris: hi\r\n")
    me = "Boris"
    assert [each[20:] for each in said(path, me)] == [*([f"Anna: {kept}"] if kept else []), "hi"]


def test_what_was_pasted_first_is_not_how_the_chat_is_dated(tmp_path: Path) -> None:
    path = tmp_path / "_chat.txt"
    path.write_text("[1/2/24, 9:05:07 PM] X: pasted\n14.08.2026, 21:00 - Anna: x\n15.08.2026, 21:00 - Boris: y\n")
    assert [each[20:] for each in said(path, "Anna")] == ["x", "Boris: y"]


def test_who_only_listened_needs_no_name(tmp_path: Path) -> None:
    path = tmp_path / "WhatsApp Chat with Boris.txt"
    path.write_text("14/08/2026, 21:00 - Boris: one\n14/08/2026, 21:00 - Boris: two\n")
    assert [each[20:] for each in said(path)] == ["Boris: one", "Boris: two"]
