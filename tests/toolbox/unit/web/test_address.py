"""Which URLs and IP addresses the web tool refuses, and how it reads charsets. Pure."""

import pytest

from klaw.domain.text import decode
from klaw.errors import ToolRefused
from klaw.guarded_http import forbidden, parse

PORTS = (80, 443)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.8.9.1", "0.0.0.0", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1",
        "100.100.100.200", "169.254.169.254", "168.63.129.16", "192.0.0.192", "198.18.0.1", "224.0.0.1", "240.0.0.1",
        "255.255.255.255", "203.0.113.5", "::", "::1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::127.0.0.1",
        "64:ff9b::7f00:1", "64:ff9b:1::7f00:1", "2002:7f00:1::", "2001:0:7f00:1::", "fc00::1", "fd00:ec2::254",
        "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "2001:db8::1", "3fff::1", "100::1", "5f00::1", "nonsense", "",
    ],
)  # fmt: skip
def test_address_that_is_not_public_is_forbidden(address: str) -> None:
    assert forbidden(address)


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "1.1.1.1", "172.32.0.1", "93.184.216.34", "2606:4700::1111", "2a02:6b8::1"]
)
def test_public_address_is_allowed(address: str) -> None:
    assert forbidden(address) is None


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("ftp://example.org/x", "Only http"),
        ("file:///etc/passwd", "Only http"),
        ("javascript:alert(1)", "Only http"),
        ("example.org", "Begin the address with https://"),
        ("//example.org/x", "Begin the address with https://"),
        ("https://user:pass@example.org/", "user name"),
        ("https://user@example.org/", "user name"),
        ("https://@example.org/", "user name"),
        ("http://example.org:8080/", "Port 8080"),
        ("http://example.org:22/", "Port 22"),
        ("http://127.1/", "odd notation"),
        ("http://0x7f.1/", "odd notation"),
        ("http://0x7f000001/", "odd notation"),
        ("http://2130706433/", "odd notation"),
        ("http://0177.0.0.1/", "usable"),
        ("http://127.0.0.1:80.5/", "usable"),
        ("http://localhost/", "machine that Klaw runs on"),
        ("http://x.localhost./", "machine that Klaw runs on"),
        ("http://exa mple.org/", "space"),
        ("http://example.org\\@127.0.0.1/", "backslash"),
        ("http://exam\u0000ple.org/", "control"),
        ("http://example.org/\u202e", "control"),
        ("http://[::1/", "usable"),
        ("http://example.org:99999/", "usable|Port"),
        ("http://", "host|usable"),
        ("", "Only http"),
        ("https://example.org/" + "a" * 5000, "longer"),
    ],
)
def test_url_that_must_not_be_fetched_is_refused(url: str, reason: str) -> None:
    with pytest.raises(ToolRefused, match=reason):
        parse(url, PORTS)


def test_url_is_taken_apart_in_ascii() -> None:
    target = parse(" https://пример.рф/путь?в=1#часть ", PORTS)

    assert (target.scheme, target.host, target.port) == ("https", "xn--e1afmkfd.xn--p1ai", 443)
    assert target.path.isascii()
    assert "#" not in target.url


def test_numbers_with_full_width_digits_become_a_plain_address() -> None:
    """What IDNA makes of the host is what is checked and connected to."""
    try:
        host = parse("http://１２７.０.０.１/", PORTS).host
    except ToolRefused:
        return
    assert forbidden(host) == "loopback"


def test_redirect_is_read_relative_to_its_page() -> None:
    assert parse("../b?x=1", PORTS, base="https://example.org/a/c").url == "https://example.org/b?x=1"
    with pytest.raises(ToolRefused, match="Only http"):
        parse("file:///etc/passwd", PORTS, base="https://example.org/")


RUSSIAN = "Съешь ещё этих мягких французских булок, да выпей чаю"


@pytest.mark.parametrize("name", ["utf-8", "windows-1251", "koi8-r"])
def test_russian_page_is_read_whatever_it_declares(name: str) -> None:
    data = RUSSIAN.encode(name)
    page = f'<html><head><meta charset="{name}"></head>'.encode() + data

    assert decode(data, name) == RUSSIAN
    assert RUSSIAN in decode(page, None)
    assert decode(data, None) == RUSSIAN
    assert decode(data, "no-such-charset") == RUSSIAN


def test_other_bytes_are_read_as_far_as_they_can_be() -> None:
    assert decode("Café crème, où êtes-vous ?".encode("cp1252"), None) == "Café crème, où êtes-vous ?"
    assert decode("“quoted”".encode("cp1252"), "iso-8859-1") == "“quoted”"
    assert decode("слово".encode()[:-1], None).startswith("слов")
    assert decode("\ufeffслово".encode(), "cp1252") == "слово"
    assert decode("слово".encode("utf-16"), "cp1252") == "слово"


@pytest.mark.parametrize("name", ["punycode", "idna", "utf-7", "rot13", "zlib_codec", "unicode_escape", "x" * 50])
def test_codec_that_is_no_charset_of_text_is_not_used(name: str) -> None:
    assert decode("\\u0041 Привет".encode(), name) == "\\u0041 Привет"
