"""From the stream of an export to requests: names of chats, ids, what is not valid."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klaw.convert import REQUESTS
from klaw.domain.imported import ImportedMessage, chat_prefix, message_id, name_for, numbered
from klaw.domain.message import MessageKind, Role
from klaw.domain.names import chat_name, client_id
from klaw.imports.events import Event, ExportedChat, ExportedMessage, LeftOut, Unread, moment
from klaw.imports.feed import ImportReport, feed

AT = "2024-03-05T10:00:00.000Z"


@given(st.text(max_size=300), st.integers(1, 10_000))
def test_every_title_gives_a_name(title: str, number: int) -> None:
    name = name_for(title, "claude 2024-03-05")
    assert chat_name(name) == name
    assert chat_name(numbered(name, number)) == numbered(name, number)


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("Где мой велосипед?!", "Где мой велосипед"),
        ("  «План»: 1/2…  ", "План 1 2"),
        ("a..b  c", "a.b c"),
        ("🙂", "claude 2024"),
        ("", "claude 2024"),
        ("ж" * 100, "ж" * 64),
        ("_-.", "claude 2024"),
    ],
)
def test_names(title: str, name: str) -> None:
    assert name_for(title, "claude 2024") == name


@given(st.text(), st.text())
def test_ids_are_valid_and_the_same_again(key: str, message: str) -> None:
    prefix = chat_prefix("openclaw", key)
    own = message_id(prefix, message)
    assert client_id(own) == own == message_id(chat_prefix("openclaw", key), message)
    assert own.startswith(f"{prefix}.")
    assert message_id(prefix, message, "100000") != own


def said(key: str, text: str = "x", **more: Any) -> ExportedMessage:
    return ExportedMessage(key=key, role=Role.USER, text=text, at=AT, **more)


def fed(*events: Event) -> tuple[ImportReport, list[dict[str, Any]]]:
    asked: list[dict[str, Any]] = []

    def put(name: str, part: dict[str, Any]) -> dict[str, Any]:
        assert name == "import_put"
        asked.append(part)
        for each in part["said"]:
            REQUESTS.read(each, ImportedMessage)
        return {"chat": part["into"] or part["name"], "added": len(part["said"]), "known": 0, "elsewhere": 0}

    return feed(events, "klaw", put, lambda _done: None), asked


def test_parts_of_a_chat_go_where_the_first_went() -> None:
    report, asked = fed(
        ExportedChat(key="c", title="Сад"),
        *(said(f"{n}") for n in range(450)),
        ExportedChat(key="d", title="B"),
        said("1"),
    )
    assert [(each["name"], each["into"], len(each["said"])) for each in asked] == [
        ("Сад", None, 200),
        ("Сад", "Сад", 200),
        ("Сад", "Сад", 50),
        ("B", None, 1),
    ]
    assert (report.chats, report.messages, report.added) == (2, 451, 451)


def test_emoji_by_the_hundred_thousand_are_stored() -> None:
    report, asked = fed(ExportedChat(key="c", title="Сад"), said("1", "😀" * 150_000), said("2", "ж" * 150_000))
    assert [len(each["content"]) for part in asked for each in part["said"]] == [50_000] * 3 + [100_000, 50_000]
    assert report.unread == []


def test_what_is_nested_too_deep_is_named() -> None:
    deep: list[object] = []
    for _ in range(5_000):
        deep = [deep]
    report, asked = fed(ExportedChat(key="c", title="Сад", own_ids=True), said("a", metadata={"a": deep}), said("b"))
    assert (len(report.unread), [each["id"] for part in asked for each in part["said"]]) == (1, ["b"])


def test_large_messages_are_parts_of_their_own() -> None:
    _, asked = fed(ExportedChat(key="c", title="Сад"), *(said(f"{n}", "ж" * 60_000) for n in range(3)))
    assert [len(each["said"]) for each in asked] == [1, 1, 1]


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (said("no id of Klaw's", ""), "a message id has 1 to 64"),
        (said("m1", "x" * 500_000), "content: must have 0 to 400000 characters"),
        (said("m1", "ж" * 200_000), "is too large"),
    ],
)
def test_what_is_not_valid_is_named_and_the_rest_goes_on(bad: ExportedMessage, why: str) -> None:
    report, asked = fed(ExportedChat(key="c", title="Сад", own_ids=True), said("a"), bad, said("b"))
    assert [each["id"] for part in asked for each in part["said"]] == ["a", "b"]
    (unread,) = report.unread
    assert unread.what == f"Сад, message {bad.key}"
    assert why in unread.why


def test_what_means_something_to_the_store_of_another_klaw_stays_there() -> None:
    own = {"forgotten": AT, "model": "x/y", "thinking": "low", "topics": True, "turn": "t1"}
    _, asked = fed(ExportedChat(key="c", title="Сад", own_ids=True), said("a", type=MessageKind.COMMAND, metadata=own))
    assert asked[0]["said"][0]["metadata"] == {"turn": "t1"}


def test_what_could_not_be_read_is_counted_and_some_of_it_named() -> None:
    report, asked = fed(*(Unread(f"{n}", "why") for n in range(60)), LeftOut("tools"), LeftOut("tools"))
    assert (report.unread_count, len(report.unread), report.left_out, asked) == (60, 50, {"tools": 2}, [])


@pytest.mark.parametrize(
    ("value", "at"),
    [
        (1_709_632_800, AT),
        (1_709_632_800.0004, AT),
        (1_709_632_800_000, AT),
        (10**400, None),
        ("2024-03-05T10:00:00Z", AT),
        ("2024-03-05T11:00:00+01:00", AT),
        ("2024-03-05T10:00:00", AT),
        (None, None),
        (True, None),
        (float("nan"), None),
        (1e300, None),
        (-1, None),
        ("yesterday", None),
        ("0001-01-01T00:00:00", None),
        ("9999-12-31T23:59:59-12:00", None),
        ({}, None),
    ],
)
def test_times(value: object, at: str | None) -> None:
    assert moment(value) == at
