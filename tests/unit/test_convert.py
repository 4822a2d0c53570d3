"""The converter of journal lines, frames, requests and models' answers: strict, and its errors name the field only."""

import enum
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NewType

import attrs
import pytest

from klaw.convert import FRAMES, JOURNAL, OMIT, REQUESTS, Bounds, Check, Converter, Form, Wire
from klaw.domain.names import chat_name
from klaw.errors import BadValue, KlawError

Owner = NewType("Owner", str)
MODELS = Converter(forbid_unknown=True, lenient=True)
ALL = [JOURNAL, FRAMES, REQUESTS, MODELS]


class Colour(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


@attrs.frozen(kw_only=True)
class Every:
    seconds: Annotated[int, Bounds(1, 3600)]


@attrs.frozen(kw_only=True)
class Part:
    name: str
    rows: Annotated[tuple[int, ...], Form(lambda given: tuple(range(*given)), lambda rows: [rows[0], rows[-1] + 1])]


@attrs.frozen(kw_only=True)
class Thing:
    owner: Annotated[Owner, Wire("user_id")]
    text: Annotated[str, Bounds(1, 20)]
    colour: Colour = Colour.RED
    mode: Literal["quick", "slow"] = "quick"
    count: int | None = None
    share: float = 0
    on: bool = False
    parts: tuple[Part, ...] = ()
    tags: list[Annotated[str, Bounds(at_least=1)]] = attrs.Factory(list)
    counts: Mapping[str, int] = attrs.Factory(dict)
    free: dict[str, Any] = attrs.Factory(dict)
    schedule: Every | None = None
    chat: Annotated[str, Check(chat_name)] = "main"
    day: Annotated[str | None, OMIT] = None


FULL: dict[str, Any] = {
    "user_id": "анна",
    "text": "Привет, мир",
    "colour": "blue",
    "mode": "slow",
    "count": 3,
    "share": 0.5,
    "on": True,
    "parts": [{"name": "часть", "rows": [3, 6]}],
    "tags": ["важное", "note"],
    "counts": {"слово": 2},
    "free": {"любое": [1, None, {"a": True}]},
    "schedule": {"seconds": 60},
    "chat": "Дом",
    "day": "2026-11-21",
}


@pytest.mark.parametrize("converter", ALL)
def test_what_is_written_is_read_again_with_the_same_names_in_the_same_order(converter: Converter) -> None:
    thing = converter.read(FULL, Thing)
    assert thing.owner == "анна"
    assert thing.colour is Colour.BLUE
    assert thing.parts == (Part(name="часть", rows=(3, 4, 5)),)
    assert thing.schedule == Every(seconds=60)
    assert list(converter.write(thing).items()) == list(FULL.items())


@pytest.mark.parametrize("converter", ALL)
def test_what_has_a_default_may_be_missing_and_is_left_out_only_where_the_class_says_so(converter: Converter) -> None:
    thing = converter.read({"user_id": "anna", "text": "Hi"}, Thing)
    assert thing == Thing(owner=Owner("anna"), text="Hi")
    written = converter.write(thing)
    assert "day" not in written
    assert written["count"] is None
    assert list(written) == [name for name in FULL if name != "day"]


WRONG = [
    ("text", 5, "text: must be a text"),
    ("text", "", "text: must have 1 to 20 characters"),
    ("text", "секрет" * 9, "text: must have 1 to 20 characters"),
    ("text", "сек\ud800рет", "text: must not hold NUL or half a surrogate pair"),
    ("count", "секрет", "count: must be a whole number"),
    ("count", True, "count: must be a whole number"),
    ("count", 2**63, "count: must be a whole number below 2^"),
    ("count", 1.5, "count: must be a whole number"),
    ("share", True, "share: must be a number"),
    ("share", float("nan"), "share: must be a number"),
    ("on", 1, "on: must be true or false"),
    ("colour", "секрет", "colour: must be one of red, blue"),
    ("colour", ["secret"], "colour: must be one of red, blue"),
    ("mode", "secret", "mode: must be one of quick, slow"),
    ("tags", "секрет", "tags: must be a list"),
    ("tags", ["a", ""], "tags[1]: must have at least 1 characters"),
    ("parts", [{"name": "a", "rows": [1, 2]}, {"rows": [1, 2]}], "parts[1].name: is required"),
    ("parts", [{"name": 7, "rows": [1, 2]}], "parts[0].name: must be a text"),
    ("parts", {"secret": 1}, "parts: must be a list"),
    ("parts", ["секрет"], "parts[0]: must be an object"),
    ("counts", ["secret"], "counts: must be an object"),
    ("free", "секрет", "free: must be an object"),
    ("schedule", {}, "schedule.seconds: is required"),
    ("schedule", {"seconds": 0}, "schedule.seconds: must be 1 to 3600"),
    ("chat", "../секрет", "chat: a chat name begins with a letter or digit"),
    ("user_id", None, "user_id: must be a text"),
]


@pytest.mark.parametrize("converter", ALL)
@pytest.mark.parametrize(("field", "value", "message"), WRONG)
def test_an_error_names_the_field_and_never_quotes_the_value(
    converter: Converter, field: str, value: object, message: str
) -> None:
    with pytest.raises(BadValue) as raised:
        converter.read({**FULL, field: value}, Thing)
    assert str(raised.value).startswith(message)
    assert raised.value.problems[0].path == message.partition(":")[0]
    assert "секрет" not in str(raised.value)
    assert "secret" not in str(raised.value)
    assert raised.value.__context__ is None  # what cattrs and Python said quotes values


def test_an_error_has_every_wrong_field_and_can_be_caught_as_one_of_ours_or_as_a_wrong_value() -> None:
    with pytest.raises(BadValue) as raised:
        FRAMES.read({"text": 1, "on": "да"}, Thing)
    assert [problem.path for problem in raised.value.problems] == ["user_id", "text", "on"]
    assert isinstance(raised.value, KlawError)
    assert isinstance(raised.value, ValueError)


@pytest.mark.parametrize("converter", ALL)
@pytest.mark.parametrize("value", [None, [], "текст", 5])
def test_anything_but_an_object_is_no_instance(converter: Converter, value: object) -> None:
    with pytest.raises(BadValue, match=r"^must be an object$"):
        converter.read(value, Thing)


def test_requests_refuse_unknown_fields_and_say_which_one_may_be_meant() -> None:
    tree = {"user_id": "a", "text": "b", "coluor": "red"}
    with pytest.raises(BadValue, match=r"^unknown field; known are user_id, text, .*; did you mean colour\?$"):
        REQUESTS.read(tree, Thing)
    assert JOURNAL.read(tree, Thing) == FRAMES.read(tree, Thing) == Thing(owner=Owner("a"), text="b")


def test_the_journal_takes_what_sqlite_holds_and_checks_free_objects_for_what_it_does_not() -> None:
    thing = JOURNAL.read({**FULL, "text": "a\0b", "count": 2**60}, Thing)
    assert (thing.text, thing.count) == ("a\0b", 2**60)
    for value in ({"a": "\udc00"}, {"a": {"b": float("inf")}}):
        with pytest.raises(BadValue, match=r"^free: must hold nothing but valid JSON and text$"):
            JOURNAL.read({**FULL, "free": value}, Thing)
    with pytest.raises(BadValue, match=r"^count: must be a whole number below 2\^53$"):
        FRAMES.read({**FULL, "count": 2**60}, Thing)


def test_four_mistakes_of_models_have_one_meaning() -> None:
    given = {
        "user_id": "anna",
        "text": "5",
        "colour": None,
        "count": "5",
        "share": "0.5",
        "on": "true",
        "tags": '["да"]',
        "parts": [{"name": "a", "rows": [1, 3]}],
        "counts": '{"a": 5.0}',
        "schedule": {"seconds": 60.0},
    }
    thing = MODELS.read(given, Thing)
    assert (thing.text, thing.colour, thing.count, thing.share, thing.on) == ("5", Colour.RED, 5, 0.5, True)
    assert (thing.tags, thing.counts, thing.schedule) == (["да"], {"a": 5}, Every(seconds=60))
    for field in ("count", "share", "on", "tags"):
        with pytest.raises(BadValue, match=f"^{field}: "):
            REQUESTS.read({"user_id": "anna", "text": "x", field: given[field]}, Thing)
    for field, value in (("count", "5.5"), ("count", "9" * 5000), ("on", "1"), ("tags", "[1"), ("share", "NaN")):
        with pytest.raises(BadValue, match=f"^{field}: "):
            MODELS.read({"user_id": "anna", "text": "x", field: value}, Thing)


def test_bounds_hold_for_texts_by_their_form_too() -> None:
    @attrs.frozen
    class Named:
        name: Annotated[str, Bounds(pattern="[а-яa-z]+")]

    assert REQUESTS.read({"name": "имя"}, Named).name == "имя"
    with pytest.raises(BadValue, match=r"^name: must have the form "):
        REQUESTS.read({"name": "Имя!"}, Named)
