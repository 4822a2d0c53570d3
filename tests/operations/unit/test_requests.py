"""How operations are asked for by name, and how that is refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klaw.operations.chats import OfChat
from klaw.operations.operation import OperationError
from klaw.operations.perform import Call, operations, read_call
from klaw.operations.server import Log, Reindex
from klaw.operations.why import Receipt

SLOW_S = {
    "voice_transcribe": 310,
    **dict.fromkeys(("config_set", "config_unset", "config_undo", "config_reload"), 75),
    **dict.fromkeys(("mcp_add", "mcp_remove", "mcp_logout", "mcp_test", "mcp_login", "mcp_login_state"), 75),
    **dict.fromkeys(("channels_add", "channels_remove"), 90),
    **dict.fromkeys(("channels_invite", "channels_pair", "channels_unpair", "channels_test"), 60),
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
    "models_look": 30,
    "models_connect": 250,
    "connect_search": 60,
    "doctor": 60,
    "import_put": 300,
    "import_remember": 300,
    "import_keep": 300,
    "import_document": 120,
    "import_undo": 21600,
}
"""Those that read all files, ask a model, or make vectors; the command line waits as long."""


def test_every_operation_has_a_deadline_and_a_meaning() -> None:
    assert SLOW_S.keys() <= operations().keys()
    for name, each in operations().items():
        assert 0 < each.deadline_s <= SLOW_S.get(name, 10), name
        assert each.help, name


def test_requests_are_structured() -> None:
    """Names in Russian are names."""
    assert read_call("actors", {}).operation.name == "actors"
    assert read_call("chats_stop", {"chat": "anna:Работа"}).asked == OfChat(chat="anna:Работа")
    assert read_call("receipt", {"turn": "t1"}).asked == Receipt(turn="t1")
    assert read_call("receipt", {"turn": None}).asked == Receipt()
    assert read_call("log", {"level": "debug"}).asked == Log(level="debug")
    assert read_call("reindex", {"action": "start", "embed_again": True}).asked == Reindex(
        action="start", embed_again=True
    )


@pytest.mark.parametrize(
    ("name", "args", "code", "says"),
    [
        ("shell", {}, "unknown_operation", "there is no such operation"),
        ("chat_context", {}, "unknown_operation", "there is no such operation"),  # in a chat only
        ("fact_lst", {}, "unknown_operation", "did you mean fact_list?"),
        ("actors", {"depth": 1}, "bad_args", "known are none"),
        ("receipt", {"trun": "x"}, "bad_args", "did you mean turn?"),
        ("kb_show", {}, "bad_args", "args.base: is required"),
        ("kb_show", {"base": 7}, "bad_args", "args.base: must be a text"),
        ("kb_show", {"base": ""}, "bad_args", "args.base: must have 1 to 128 characters"),
        ("kb_show", {"base": "x" * 129}, "bad_args", "args.base: must have 1 to 128 characters"),
        ("kb_show", {"base": "a:\0"}, "bad_args", "args.base: must not hold NUL"),
        ("kb_show", {"base": "a:\ud800"}, "bad_args", "args.base: must not hold NUL"),
        ("log", {"level": "DEBUG"}, "bad_args", "args.level: must be one of debug, info, warning, error"),
        ("log", {"level": ["debug"]}, "bad_args", "args.level: must be one of"),
        ("reindex", {"action": "drop"}, "bad_args", "args.action: must be one of start, status, cancel"),
        ("reindex", {"embed_again": "yes"}, "bad_args", "args.embed_again: must be true or false"),
        ("reindex", {"accept_differences": 1}, "bad_args", "args.accept_differences: must be true or false"),
    ],
)
def test_bad_requests_name_the_field(name: str, args: dict[str, Any], code: str, says: str) -> None:
    with pytest.raises(OperationError) as caught:
        read_call(name, args)
    assert caught.value.code == code
    assert says in str(caught.value)


def test_errors_quote_no_value() -> None:
    for name, args in (("chats_stop", {"chat": ["секрет"]}), ("секрет", {}), ("chats_stop", {"секрет": 1})):
        with pytest.raises(OperationError) as caught:
            read_call(name, args)
        assert "секрет" not in str(caught.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.sampled_from([*operations(), "nothing"]),
    st.dictionaries(st.sampled_from(["chat", "user", "turn", "level", "x"]), JSON, max_size=3),
)
def test_nothing_but_an_operation_error_is_raised(name: str, args: dict[str, Any]) -> None:
    try:
        made = read_call(name, args)
    except OperationError as error:
        assert error.code  # noqa: PT017 - either outcome is right
    else:
        assert isinstance(made, Call)
