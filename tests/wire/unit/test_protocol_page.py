"""docs/protocol.md: every example can be read, every frame has one, every error and close code is listed."""

import json
import re
from typing import get_args

import pytest

from klaw.errors import ProtocolError
from klaw.gateway.answers import _BY_CLASS
from klaw.gateway.link import Close
from klaw.wire.codec import decode_client, decode_server
from klaw.wire.frames import ClientFrame, ServerFrame
from tests.support.repository import REPOSITORY

PAGE = (REPOSITORY / "docs" / "protocol.md").read_text()
CLIENT, SERVER = PAGE.split("## Frames of the client")[1].split("## Frames of the server")
EXAMPLES = re.compile(r"```json\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES.findall(CLIENT))
def test_client_examples_are_frames(example):
    assert decode_client(example, 65_536).type == json.loads(example)["type"]


@pytest.mark.parametrize("example", EXAMPLES.findall(SERVER))
def test_server_examples_are_frames_without_unknown_fields(example):
    frame = decode_server(example)
    tree = json.loads(example)
    assert frame.type == tree.pop("type")
    assert set(tree) <= {field.name for field in frame.__attrs_attrs__}


def test_every_frame_has_an_example():
    for part, union in ((CLIENT, ClientFrame), (SERVER, ServerFrame)):
        shown = {json.loads(example)["type"] for example in EXAMPLES.findall(part)}
        assert shown == {cls.type for cls in get_args(union)}


def test_every_error_and_close_code_is_listed():
    rooms = ("gateway", "wire", "store", "store/kinds")
    source = "".join(path.read_text() for room in rooms for path in (REPOSITORY / "klaw" / room).glob("*.py"))
    codes = set(re.findall(r'(?:Error\(\s*code=|(?:ProtocolError|Refused)\(\s*|_named\()"([a-z_]+)"', source))
    codes |= {refusal.code for refusal in _BY_CLASS.values()}
    assert len(codes) > 20
    table = PAGE.split("## Errors")[1].split("## Close codes")[0]
    assert {code for code in codes if f"`{code}`" not in table} == set()
    closing = PAGE.split("## Close codes")[1]
    assert {str(close.code) for close in Close if str(close.code) not in closing} == set()


def test_a_frame_of_the_server_is_none_of_a_client():
    with pytest.raises(ProtocolError):
        decode_client('{"type": "ack", "id": "m1", "chat": "main", "seq": 1}', 1000)
