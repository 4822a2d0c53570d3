"""Takeouts of Gemini: the list as JSON and as a page, in several languages."""

import datetime as dt
import json
from functools import partial
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from klaw.imports import gemini
from klaw.imports.events import ExportedChat, ExportedMessage, ImportRefused, LeftOut, Unread
from klaw.toolbox.html_text import convert
from tests.support.exports import Read, events, texts, zipped

ZONE = ZoneInfo("Europe/Berlin")
READ: Read = partial(gemini.read, zone=ZONE, to_text=lambda html: convert(html, "", plain=True)["text"])
FOLDER = "Takeout/My Activity/Gemini Apps"


def entry(asked: str, answer: str | None, at: str, **more: Any) -> dict[str, Any]:
    found = {"header": "Gemini Apps", "title": asked, "time": at, "products": ["Gemini Apps"], **more}
    return found | ({"safeHtmlItem": [{"html": answer}]} if answer else {})


ENTRIES = [
    entry(
        "Prompted And in June?", "<p>At <b>22:20</b>.</p><ul><li>one</li><li>two</li></ul>", "2026-03-02T10:01:00.250Z"
    ),
    entry("Prompted When is sunset\nin Riga?", "<p>At 18:05.</p>", "2026-03-02T10:00:00.117Z"),
    entry("Used Gemini Apps", None, "2026-03-01T12:00:00Z"),
    entry("Gave feedback: Good response", "<p>x</p>", "2026-03-01T12:00:00Z"),
    entry(
        "Prompted What is in it?",
        "<p>A cat.</p>",
        "2026-03-01T11:00:00Z",
        subtitles=[
            {"name": "Attached 2 files."},
            {"name": "-  cat.png", "url": "cat-1e98.png"},
            {"name": "Tom was used."},
        ],
        imageFile="cat-1e98.png",
        attachedFiles=["gone.pdf"],
    ),
    entry("Prompted Nobody answered", None, "2026-03-01T10:00:00Z"),
    entry("Searched for cats", None, "2026-03-01T09:00:00Z") | {"header": "Search", "products": ["Search"]},
]
SAID = [
    "user: Nobody answered",
    "user: What is in it?\n[file: cat.png]\n[file: gone.pdf]",
    "assistant: A cat.",
    "user: When is sunset\nin Riga?",
    "assistant: At 18:05.",
    "user: And in June?",
    "assistant: At 22:20.\n\n- one\n- two",
]


def takeout(path: Path, files: dict[str, Any]) -> Path:
    return zipped(path, **{name.replace(".", "__"): content for name, content in files.items()})


def test_what_was_asked_on_one_day_is_a_chat(tmp_path: Path) -> None:
    path = takeout(
        tmp_path / "takeout.zip",
        {
            f"{FOLDER}/MyActivity.json": ENTRIES,
            f"{FOLDER}/cat-1e98.png": b"PNG",
            "Takeout/My Activity/Search/MyActivity.json": [ENTRIES[-1]],
            "Takeout/archive_browser.html": "<html>",
        },
    )
    found = events(path, READ)
    assert [each for each in found if isinstance(each, ExportedChat)] == [
        ExportedChat(key=f"2026-03-0{day}", title=f"Gemini 2026-03-0{day}") for day in (1, 2)
    ]
    assert texts(path, READ) == SAID
    said = [each for each in found if isinstance(each, ExportedMessage)]
    assert said[3].at == said[4].at == "2026-03-02T10:00:00.117Z"
    assert [each.name for each in said[1].files] == ["cat.png"]
    assert [each.what for each in found if isinstance(each, Unread)] == ["Gemini, 2026-03-01T11:00"]
    assert sorted(each.why for each in found if isinstance(each, LeftOut)) == [
        *["of other products of Google"] * 2,
        *["other activity"] * 2,
    ]


@pytest.mark.parametrize(
    "name", ["Моя активность/Приложения Gemini/Моя активность.json", "x/Apps de Gemini/MiActividad.json"]
)
def test_folders_and_verbs_of_other_languages(tmp_path: Path, name: str) -> None:
    said = ["Где закат?", "Когда восход?", "Что такое лес?", "Почему небо синее?"]
    for before, behind in (("Отправлен запрос: ", ""), ("", "と入力しました")):
        asked = [
            entry(f"{before}{text}{behind}", "<p>Да</p>", f"2026-03-01T10:0{n}:00Z", header="Приложения Gemini")
            for n, text in enumerate(said)
        ]
        path = takeout(tmp_path / f"{len(before)}.zip", {f"Takeout/{name}": asked[::-1]})
        assert texts(path, READ)[::2] == [f"user: {text}" for text in said]


def test_conversations_that_are_named_stay_together(tmp_path: Path) -> None:
    link = {"titleUrl": "https://gemini.google.com/app/abc123def456"}
    asked = [
        entry("Prompted three", "3", "2026-03-02T10:00:00Z", **link),
        entry("Prompted two", "2", "2026-03-01T11:00:00Z"),
        entry("Prompted one", "1", "2026-03-01T10:00:00Z", **link),
    ]
    (tmp_path / "MyActivity.json").write_text(json.dumps(asked))
    found = [each for each in events(tmp_path / "MyActivity.json", READ) if not isinstance(each, Unread)]
    assert [each.title if isinstance(each, ExportedChat) else each.text for each in found] == [  # type: ignore[union-attr]
        *("one", "one", "1", "three", "3"),
        *("Gemini 2026-03-01", "two", "2"),
    ]


def page(*cards: tuple[str, str, str]) -> str:
    cells = (
        '<div class="outer-cell mdl-cell mdl-cell--12-col mdl-shadow--2dp"><div class="mdl-grid">'
        '<div class="header-cell mdl-cell mdl-cell--12-col"><p class="mdl-typography--title">Gemini Apps<br></p></div>'
        f'<div class="content-cell mdl-cell mdl-cell--6-col mdl-typography--body-1">{asked}<br>{at}<br>{answer}</div>'
        '<div class="content-cell mdl-cell mdl-cell--6-col mdl-typography--body-1 mdl-typography--text-right"></div>'
        '<div class="content-cell mdl-cell mdl-cell--12-col mdl-typography--caption"><b>Products:</b><br>&emsp;Gemini'
        " Apps<br></div></div></div>"
        for asked, at, answer in cards
    )
    return f'<html><head><title>x</title></head><body><div class="mdl-grid">{"".join(cells)}</div></body></html>'


def test_the_page_is_read_like_the_list(tmp_path: Path) -> None:
    """With the same keys, so that nothing comes twice."""
    cards = (
        (
            "Prompted&nbsp;And in June?",
            "Mar 2, 2026, 11:01:00&#8239;AM CET",
            "<p>At <b>22:20</b>.</p><ul><li>one</li><li>two</li></ul>",
        ),
        ("Prompted&nbsp;When is sunset<br>in Riga?", "Mar 2, 2026, 10:00:00 AM UTC", "<div><p>At 18:05.</p></div>"),
        ("Used Gemini Apps", "Mar 1, 2026, 12:00:00 PM UTC", ""),
        (
            'Prompted&nbsp;What is in it?<br>Attached 1 file.<br>-&nbsp;<a href="cat-1e98.png">cat.png</a>',
            "Mar 1, 2026, 11:00:00 AM UTC",
            "<p>A cat.</p>",
        ),
        ("Prompted&nbsp;a &lt;b&gt; &amp; c", "Smarch 1, 11:00:00 AM UTC", "<p>x</p>"),
    )
    folder = tmp_path / "Takeout" / "Gemini Apps"
    folder.mkdir(parents=True)
    (folder / "MyActivity.html").write_text(page(*cards))
    found = events(tmp_path, READ)
    assert texts(tmp_path, READ) == ["user: What is in it?\n[file: cat-1e98.png]", *SAID[2:]]
    unread = next(each.what for each in found if isinstance(each, Unread))
    assert unread == "Takeout/Gemini Apps/MyActivity.html, entry 5"
    keys = {each.key for each in found if isinstance(each, ExportedMessage)}
    (folder / "MyActivity.html").unlink()
    (folder / "MyActivity.json").write_text(json.dumps(ENTRIES))
    assert keys <= {each.key for each in events(tmp_path, READ) if isinstance(each, ExportedMessage)}


@pytest.mark.parametrize(
    ("written", "at"),
    [
        ("Mar 1, 2026, 3:04:05 PM UTC", "2026-03-01T15:04:05"),
        ("Mar 1, 2026, 3:04:05\u202fPM GMT+03:00", "2026-03-01T12:04:05"),
        ("Mar 1, 2026, 3:04:05 PM PST", "2026-03-01T14:04:05"),
        ("1 Mar 2026, 15:04:05 GMT", "2026-03-01T15:04:05"),
        ("1 мар. 2026 г., 15:04:05 MSK", "2026-03-01T14:04:05"),
        ("1 мая 2026 г., 15:04:05 GMT+03:00", "2026-05-01T12:04:05"),
        ("01.03.2026, 15:04:05 MEZ", "2026-03-01T14:04:05"),
        ("1 mars 2026, 15:04:05 CET", "2026-03-01T14:04:05"),
        ("1 de mar. de 2026, 15:04:05 BRT", "2026-03-01T14:04:05"),
        ("2026/03/01 15:04:05 JST", "2026-03-01T14:04:05"),
        ("2026. 3. 1. 오후 3:04:05 KST", "2026-03-01T14:04:05"),
        ("2026年3月1日 15:04:05 CST", "2026-03-01T14:04:05"),
        ("15:04:05 1 thg 3, 2026 UTC", "2026-03-01T15:04:05"),
        ("What about 3:04:05?", None),
        ("I ran it on 40/41/2026, 3:04:05 PM", None),
    ],
)
def test_times_of_the_page(written: str, at: str | None) -> None:
    found = gemini._moment(written, ZONE)
    assert (found and found[:19]) == at


@pytest.mark.parametrize("bad", [None, 5, "x", [], {"title": 5}, {"title": "Prompted x"}])
def test_one_bad_entry_does_not_stop_the_rest(tmp_path: Path, bad: Any) -> None:
    (tmp_path / "MyActivity.json").write_text(json.dumps([ENTRIES[0], bad, ENTRIES[1]]))
    assert texts(tmp_path, READ) == SAID[3:]
    assert len([each for each in events(tmp_path, READ) if isinstance(each, Unread)]) == 1


def test_a_takeout_without_gemini_says_so(tmp_path: Path) -> None:
    with pytest.raises(ImportRefused, match=r"there is no MyActivity\.json"):
        events(takeout(tmp_path / "t.zip", {"Takeout/YouTube/x.json": []}), READ)


def test_times_without_a_zone_are_local(tmp_path: Path) -> None:
    assert dt.datetime.fromisoformat(gemini._moment("Mar 1, 2026, 3:04:05 PM", ZONE) or "").hour == 14
