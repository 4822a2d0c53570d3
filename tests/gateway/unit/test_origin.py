"""Origins: cross-site pages and DNS rebinding."""

import pytest

from klaw.gateway.origin_check import Endpoints, is_loopback, session_of, written

ALLOWED = ("https://chat.example", "app://obsidian.md", "chrome-extension://abcdef")
PLACE = Endpoints(loopback=False, own_hosts=frozenset({"192.168.1.5", "klaw.lan"}))


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
        ("app://obsidian.md", "127.0.0.1:8181", True),
        ("chrome-extension://abcdef", "127.0.0.1:8181", True),
        ("chrome-extension://other", "127.0.0.1:8181", False),
        ("app://127.0.0.1", "127.0.0.1", False),
        ("http://evil@127.0.0.1:8181", "127.0.0.1:8181", False),
        ("http://127.0.0.1:8181/x", "127.0.0.1:8181", False),
        ("http://127.0.0.1:8181", "evil@127.0.0.1:8181", False),
        ("http://127.0.0.1", "127.0.0.1:0", False),
        ("https://chat.example@evil.example", "127.0.0.1", False),
        ("https://chat.example#", "127.0.0.1", False),
    ],
)
def test_origin(origin, host, expected):
    assert PLACE.allows(origin, host, ALLOWED) is expected


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("127.0.0.1:8181", True), ("LOCALHOST", True), ("[::1]:8181", True), ("klaw.lan", True),
        ("127.0.0.1/evil", False), ("evil@127.0.0.1", False), ("127.0.0.1?x", False), ("127.0.0.1#x", False),
        ("127.0.0.1\\evil", False), ("127.0.0.1:0", False), ("127.0.0.1:99999", False), ("127.0.0.1:8181:1", False),
        ("127.0.0.1:", False), ("127.0.0.1 ", False), ("[::1%25lo]", False), ("::1", False), ("[::1", False),
        ("localhost.", False), ("127.0.0.1.", False), ("127.0.0.1,evil.example", False), ("2130706433", False),
        ("evil.example", False), ("", False), (None, False),
    ],
)  # fmt: skip
def test_a_host_is_read_strictly(host, own):
    """26.B3."""
    assert PLACE.is_own(host) is own


@pytest.mark.parametrize(
    ("site", "origin", "expected"),
    [
        ("same-origin", None, True), ("none", None, True), ("Same-Origin ", "http://localhost:1", True),
        ("cross-site", None, False), ("same-site", None, False), ("cross-site", "http://localhost:1", False),
        ("anything", None, False), ("", None, False), ("cross-site", "https://chat.example", True),
    ],
)  # fmt: skip
def test_a_page_elsewhere_is_known_without_an_origin(site, origin, expected):
    """26.B3."""
    assert PLACE.allows(origin, "localhost:1", ALLOWED, site) is expected


@pytest.mark.parametrize(
    ("origin", "text"),
    [
        ("https://Chat.Example:443", "https://chat.example"), ("http://a.example:8080", "http://a.example:8080"),
        ("app://obsidian.md", "app://obsidian.md"), ("http://[::1]:80", "http://[::1]"),
    ],
)  # fmt: skip
def test_an_origin_is_written_as_browsers_do(origin, text):
    assert written(origin) == text


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
