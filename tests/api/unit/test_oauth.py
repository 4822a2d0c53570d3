"""What OAuth for MCP clients decides without a server: redirect URIs, ids of clients, how long a code holds."""

from types import SimpleNamespace

import pytest

from klaw.api.oauth import (
    CODE_S,
    AuthorizationCode,
    AuthorizationRequest,
    AuthorizationServer,
    OAuthError,
    Registration,
    place_in,
    registered,
)
from klaw.domain.names import UserId
from klaw.gateway.tokens import Grant

DESK = Registration(client_name="Desk", redirect_uris=("http://127.0.0.1:1234/cb", "https://desk.example/cb"))


@pytest.mark.parametrize(
    ("uri", "accepted"),
    [
        ("http://127.0.0.1:1234/cb", True),
        ("http://127.0.0.1:60000/cb", True),
        ("http://127.0.0.1/cb", True),
        ("http://localhost:1234/cb", False),
        ("http://127.0.0.1:1234/cb/", False),
        ("https://desk.example/cb", True),
        ("https://desk.example:444/cb", False),
        ("https://desk.example/cb?u=http://127.0.0.1:1", False),
        ("https://desk.example/CB", False),
    ],
)
def test_redirect_uris_match_exactly_but_for_a_port_of_the_loopback(uri, accepted):
    assert DESK.accepts(uri) is accepted


def test_a_client_s_id_says_what_it_registered():
    assert registered(DESK.id) == DESK
    for wrong in ("", "x", DESK.id[:-2], "W10", "e30", "bnVsbA", "WyJhIiwiamF2YXNjcmlwdDphbGVydCgxKSJd", "[" * 5_000):
        with pytest.raises(OAuthError):
            registered(wrong)


def test_a_person_is_told_a_host_or_an_app():
    assert [place_in(each) for each in (*DESK.redirect_uris, "com.example.app:/cb")] == [
        "127.0.0.1:1234",
        "desk.example",
        "com.example.app:",
    ]


async def test_a_code_holds_for_a_minute():
    verifier, challenge = "v" * 50, "CrlVwe1WSHWuTQYh3iczmx3aS-faRx6C92k9_hNxl4A"
    grant = Grant(user=UserId("anna"), token="1")
    request = AuthorizationRequest(
        client=DESK, client_id=DESK.id, redirect_uri=DESK.redirect_uris[0], challenge=challenge, state=None, query=""
    )
    server = AuthorizationServer(SimpleNamespace())
    given = {"code_verifier": verifier, "client_id": DESK.id}
    for asked_at, holds in ((CODE_S - 1, True), (CODE_S, False)):
        code = server.keep(AuthorizationCode(request, grant, CODE_S), 0.0)
        if holds:
            assert (await server.redeemed({**given, "code": code}, asked_at)).grant == grant
        else:
            with pytest.raises(OAuthError):
                await server.redeemed({**given, "code": code}, asked_at)
