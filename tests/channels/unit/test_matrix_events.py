"""What is read in events whose content other people's programs made up."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from klaw.channels import matrix_events as events
from klaw.channels.matrix_events import RoomState
from klaw.channels.messenger import IncomingMessage

BOT = "@klaw:example.org"
WORDS = (
    "body", "msgtype", "m.text", "m.image", "m.location", "m.relates_to", "m.in_reply_to", "event_id", "rel_type",
    "m.replace", "m.thread", "m.new_content", "url", "mxc://a/b", "info", "size", "mimetype", "filename", "key",
    "klaw.buttons", "data", "m.mentions", "user_ids", BOT, "formatted_body", "displayname", "membership", "join",
    "unsigned", "prev_content", "m.relations", "content", "redacts", "is_falling_back", "m.poll", "\ud800", "\0",
)  # fmt: skip
KEYS = st.sampled_from(WORDS)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=9), KEYS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=6)),
    max_leaves=25,
)
CONTENTS = st.dictionaries(KEYS, VALUES, max_size=8)
KINDS = st.sampled_from([*events.TIMELINE, "m.unknown"])


def event(kind: str, content: Any, **more: Any) -> dict[str, Any]:
    told = {
        "type": kind,
        "content": content,
        "sender": "@anna:example.org",
        "event_id": "$1",
        "origin_server_ts": 1_000,
    }
    return {**told, **more}


@given(KINDS, CONTENTS, CONTENTS, CONTENTS)
def test_any_content_is_read_or_passed_over(kind: str, content: Any, other: Any, unsigned: Any) -> None:
    room = RoomState("!room", BOT)
    made, target = event(kind, content, unsigned=unsigned), event("m.room.message", other, unsigned=unsigned)
    room.learn(unsigned, [made, event(kind, other, state_key="@anna:example.org")])
    room.conversation(made)
    events.entered([made, event("m.room.member", content, state_key=BOT, unsigned=unsigned)], BOT)
    events.invitation("!room", [event("m.room.member", content, state_key=BOT)], BOT)
    events.pressed(made, target)
    events.removed(made, room)
    for about in (None, target):
        said = events.said(made, room, [BOT, "klaw"], {"new"}, about)
        if said is not None:
            assert isinstance(said, IncomingMessage)
            assert said.text or said.files
            assert "\0" not in said.text
            (said.text + said.sender.name).encode()


def test_bot_came_in_where_it_was_invited_or_joined() -> None:
    def member(membership: str, before: str = "", who: str = BOT) -> dict[str, Any]:
        unsigned = {"prev_content": {"membership": before}} if before else {}
        return event("m.room.member", {"membership": membership}, state_key=who, unsigned=unsigned)

    message = event("m.room.message", {"body": "a"})
    assert events.entered([message, member("join", who="@anna:example.org")], BOT) is None
    assert events.entered([message, member("invite"), message, member("join", "invite"), message], BOT) == 1
    assert events.entered([message, member("join"), message], BOT) == 1
    assert events.entered([member("join", "join"), message], BOT) is None  # it has changed its name
    left = [member("invite"), member("join", "invite"), member("leave", "join"), message, member("join", "leave")]
    assert events.entered(left, BOT) == 4
