"""The path below which a proxy shows Klaw."""

import re

import pytest

from klaw.config.schema import PATH_PREFIX
from klaw.gateway.origin_check import parted


@pytest.mark.parametrize(
    ("path", "own", "told", "expected"),
    [
        ("/api/v1/me", "", None, ("", "/api/v1/me")),
        ("/klaw/api/v1/me", "/klaw", None, ("/klaw", "/api/v1/me")),
        ("/klaw", "/klaw", None, ("/klaw", "")),
        ("/klaw/", "/klaw", "/klaw", ("/klaw", "/")),
        ("/klawful", "/klaw", None, ("", "/klawful")),
        ("/api/v1/me", "/api", None, ("/api", "/v1/me")),
        ("/ws", "/klaw", None, ("", "/ws")),  # asked without the proxy
        ("/ws", "", "/home/klaw", ("/home/klaw", "/ws")),
        ("/ws", "", "/klaw/", ("/klaw", "/ws")),
        ("/api/v1/me", "", "/api", ("/api", "/api/v1/me")),
        *(
            ("/", "", told, ("", "/"))
            for told in (
                "", "/", "//evil.example", "/..", "/a/../b", "/.", "/a//b", "klaw", "https://evil.example",
                '/"><script>', "/a'b", "/a b", "/a;Path=/", "/a\nb", "/a\n", "/a,/b", "/%2e%2e", "/огород",
                "/" + 100 * "a", "/\\evil",
            )
        ),
    ],
)  # fmt: skip
def test_path_is_parted(path, own, told, expected):
    assert parted(path, own, told) == expected


def test_prefix_of_the_configuration():
    assert all(re.fullmatch(PATH_PREFIX, each) for each in ("", "/klaw", "/a/b.c/~d_e-f"))
    assert not any(re.fullmatch(PATH_PREFIX, each) for each in ("/", "klaw", "/klaw/", "//host", "/a/../b", '/a"'))
