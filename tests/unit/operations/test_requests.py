"""What the admin socket accepts, and how it says no."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klaw.admin.socket import parse
from klaw.operations.chat import OfChat
from klaw.operations.operation import OperationError
from klaw.operations.perform import Call, operations
from klaw.operations.receipt import Receipt
from klaw.operations.server import Log, Reindex

SLOW_S = {
    "kb_add": 120,
    "kb_check": 3600,
    "kb_delete": 3600,
    "kb_remove": 3600,
    "backup_mark": 60,
    "forget": 600,
    "chats_delete": 3600,
    "topics_split": 600,
    "topics_edit": 60,
    "topics_merge": 60,
    "topics_rebuild": 60,
    "topics_undo": 60,
    "models_test": 120,
    "doctor": 60,
    "import_put": 300,
    "import_remember": 300,
    "import_keep": 300,
    "import_undo": 21600,
}
"""Those that read all files, ask a model, or make vectors; the command line waits as long."""


def request(command: object, **args: object) -> bytes:
    return json.dumps({"command": command, "args": args}).encode()


def test_every_operation_has_a_deadline_and_a_meaning() -> None:
    assert SLOW_S.keys() <= operations().keys()
    for name, each in operations().items():
        assert 0 < each.deadline_s <= SLOW_S.get(name, 10), name
        assert each.help, name


def test_requests_are_structured() -> None:
    """Args may be left out; names in Russian are names."""
    assert parse(b'{"command": "actors"}').operation.name == "actors"
    assert parse(request("chat", chat="anna:Работа")).asked == OfChat(chat="anna:Работа")
    assert parse(request("receipt", turn="t1")).asked == Receipt(turn="t1")
    assert parse(request("receipt", turn=None)).asked == Receipt()
    assert parse(request("log", level="debug")).asked == Log(level="debug")
    assert parse(request("reindex", action="start", embed_again=True)).asked == Reindex(
        action="start", embed_again=True
    )


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        (b"", "bad_json", "one JSON object"),
        (b"actors", "bad_json", "one JSON object"),
        (b"\xff\xfe{}", "bad_json", "UTF-8"),
        (b"[" * 50_000, "bad_json", "one JSON object"),
        (b'{"command": "log", "args": {"level": NaN}}', "bad_json", "one JSON object"),
        (b"[]", "bad_request", "a JSON object"),
        (b"{}", "bad_request", "command: is required"),
        (b'{"command": 5}', "bad_request", "command: must be a text"),
        (b'{"command": "actors", "extra": 1}', "bad_request", "command, args and as only"),
        (b'{"command": "shell"}', "unknown_command", "there is no such command; known are"),
        (b'{"command": "actors", "args": []}', "bad_request", "args: must be an object"),
        (request("actors", depth=1), "bad_args", "known are none"),
        (request("receipt", trun="x"), "bad_args", "did you mean turn?"),
        (request("chat"), "bad_args", "args.chat: is required"),
        (request("chat", chat=7), "bad_args", "args.chat: must be a text"),
        (request("chat", chat=""), "bad_args", "args.chat: must have 1 to 128 characters"),
        (request("chat", chat="x" * 129), "bad_args", "args.chat: must have 1 to 128 characters"),
        (request("chat", chat="a:\0"), "bad_args", "args.chat: must not hold NUL"),
        (request("chat", chat="a:\ud800"), "bad_args", "args.chat: must not hold NUL"),
        (request("log", level="DEBUG"), "bad_args", "args.level: must be one of debug, info, warning, error"),
        (request("log", level=["debug"]), "bad_args", "args.level: must be one of"),
        (request("reindex", action="drop"), "bad_args", "args.action: must be one of start, status, cancel"),
        (request("reindex", embed_again="yes"), "bad_args", "args.embed_again: must be true or false"),
        (request("reindex", accept_differences=1), "bad_args", "args.accept_differences: must be true or false"),
    ],
)
def test_bad_requests_name_the_field(line: bytes, code: str, says: str) -> None:
    with pytest.raises(OperationError) as caught:
        parse(line)
    assert caught.value.code == code
    assert says in str(caught.value)


def test_errors_quote_no_value() -> None:
    for line in (request("chat", chat=["секрет"]), request("секрет"), b'{"command": "chat", "args": "secret-value'):
        with pytest.raises(OperationError) as caught:
            parse(line)
        assert "секрет" not in str(caught.value)
        assert "secret" not in str(caught.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.binary(max_size=200)
    | JSON.map(lambda value: json.dumps(value).encode())
    | st.builds(
        lambda name, args: json.dumps({"command": name, "args": args}).encode(),
        st.sampled_from([*operations(), "nothing"]),
        st.dictionaries(st.sampled_from(["chat", "user", "turn", "level", "x"]), JSON, max_size=3),
    )
)
def test_nothing_but_bad_request_is_raised(line: bytes) -> None:
    """Whatever comes in, it is a request or a OperationError."""
    try:
        made = parse(line)
    except OperationError as error:
        assert error.code  # noqa: PT017 - either outcome is right
    else:
        assert isinstance(made, Call)
