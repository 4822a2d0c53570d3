"""Origins: cross-site pages and DNS rebinding."""

import pytest

from klaw.gateway.access import Place, is_loopback, session_of

ALLOWED = ("https://chat.example",)
PLACE = Place(loopback=False, own_hosts=frozenset({"192.168.1.5", "klaw.lan"}))


@pytest.mark.parametrize(
    ("origin", "host", "expected"),
    [
        (None, None, True),
        (None, "anything", True),
        ("http://127.0.0.1:8181", "127.0.0.1:8181", True),
        ("http://localhost:8181", "localhost:8181", True),
        ("http://[::1]:8181", "[::1]:8181", True),
        ("http://192.168.1.5:8181", "192.168.1.5:8181", True),
        ("http://KLAW.lan:8181", "klaw.LAN:8181", True),
        ("https://klaw.lan", "klaw.lan", True),
        ("https://chat.example", "whatever", True),
        ("https://chat.example:443", None, True),
        ("http://chat.example", "127.0.0.1:8181", False),
        ("https://chat.example:444", "127.0.0.1:8181", False),
        ("https://evil.example", "127.0.0.1:8181", False),
        ("http://evil.example:8181", "evil.example:8181", False),  # DNS rebinding
        ("http://localhost:8080", "localhost:8181", False),  # another server on this machine
        ("http://localhost:8181", "127.0.0.1:8181", False),
        ("http://localhost:8181", None, False),
        ("null", "localhost:8181", False),
        ("", "localhost:8181", False),
        ("file://", "localhost:8181", False),
        ("http://[bad", "localhost:8181", False),
        ("http://localhost:99999", "localhost:8181", False),
        ("http://localhost:8181", "localhost:x", False),
    ],
)
def test_origin(origin, host, expected):
    assert PLACE.allows(origin, host, ALLOWED) is expected


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True), ("LOCALHOST", True),
        ("::ffff:127.0.0.1", True), ("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("example.org", False),
        ("fe80::1%eth0", False), ("localhost.evil.example", False),
    ],
)  # fmt: skip
def test_loopback(host, expected):
    assert is_loopback(host) is expected


@pytest.mark.parametrize("text", ['"\\141"', "\\" * 9, "", 'x"'])
def test_a_cookie_is_taken_as_it_stands(text: str) -> None:
    """To undo the quotes of a long one took half a second."""
    assert session_of({"cookie": f"a=b; klaw_session={text}; klaw_session=later"}) == text
    assert session_of({"cookie": "klaw_session"}) == ""
    assert session_of({"cookie": "other=1"}) is None
