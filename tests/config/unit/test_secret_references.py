"""A secret is looked up when it is used, wherever it comes from; an error names its key and never its value."""

import os

import pytest

from klaw.config.load import parse, unresolved_secrets
from klaw.errors import ConfigError

URL = "http://127.0.0.1:9/v1"


def provider(text, **environ):
    made, _ = parse(f"providers: {{cloud: {{baseUrl: '{URL}', {text}}}}}", environ)
    return made.providers["cloud"]


def refused(secret):
    with pytest.raises(ConfigError) as caught:
        secret.reveal("providers.cloud.apiKey")
    (problem,) = caught.value.problems
    assert problem.path == "providers.cloud.apiKey"
    return problem.message


def test_a_key_that_is_not_here_stops_nobody_who_does_not_need_it():
    key = provider("apiKey: '${SOME_KEY}'").api_key
    assert refused(key) == "the environment variable SOME_KEY is not set"


def test_a_value_that_everybody_needs_is_still_missed_at_once():
    with pytest.raises(ConfigError, match=r"gateway\.host: the environment variable SOME_HOST is not set"):
        parse("gateway: {host: '${SOME_HOST}'}", {})


def test_a_key_is_read_at_each_use():
    environ = {"SOME_KEY": "first"}
    made, _ = parse(f"providers: {{cloud: {{baseUrl: '{URL}', apiKey: '${{SOME_KEY}}'}}}}", environ)
    key = made.providers["cloud"].api_key
    assert key.reveal("") == "first"
    environ["SOME_KEY"] = "second"
    assert key.reveal("") == "second"


def test_a_key_in_a_file(tmp_path):
    file = tmp_path / "cloud key"
    file.write_text("sk-1\r\n")
    made = provider(f"apiKey: '${{file:{file}}}', headers: {{Authorization: 'Bearer ${{file:{file}}}'}}")
    assert made.api_key.reveal("") == "sk-1"
    assert made.headers["Authorization"].reveal("") == "Bearer sk-1"


def test_a_credential_of_systemd(tmp_path):
    (tmp_path / "cloud").write_text("sk-2\n")
    here = provider("apiKey: '${credential:cloud}'", CREDENTIALS_DIRECTORY=str(tmp_path))
    assert here.api_key.reveal("") == "sk-2"
    assert "No such file" in refused(
        provider("apiKey: '${credential:other}'", CREDENTIALS_DIRECTORY=str(tmp_path)).api_key
    )
    assert "LoadCredential=" in refused(provider("apiKey: '${credential:cloud}'").api_key)


def test_files_that_hold_no_key_are_refused_and_never_waited_for(tmp_path):
    def read(path):
        return refused(provider(f"apiKey: '${{file:{path}}}'").api_key)

    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "two lines").write_text("sk-very-secret\nsk-very-secret\n")
    (tmp_path / "empty").write_text("\n")
    with (tmp_path / "large").open("wb") as large:
        large.truncate(1 << 40)
    assert "is not a regular file" in read(tmp_path / "pipe")
    assert "regular file" in read("/dev/zero")
    assert "Is a directory" in read(tmp_path)
    assert "UTF-8" in read(tmp_path / "binary")
    assert "larger than" in read(tmp_path / "large")
    assert "No such file" in read(tmp_path / "none")
    for name in ("two lines", "empty"):
        message = read(tmp_path / name)
        assert "printable ASCII" in message
        assert "secret" not in message


@pytest.mark.parametrize(
    "text", ["${file:}", "${file:key}", "${file:../key}", "${credential:}", "${credential:../key}"]
)
def test_a_malformed_reference_is_refused_when_the_file_is_read(text):
    with pytest.raises(ConfigError, match=r"\$\{credential:NAME\}"):
        provider(f"apiKey: '{text}'")


def test_all_secrets_that_lead_nowhere_are_listed_by_their_keys():
    text = """
providers:
  cloud: {baseUrl: "http://h/v1", apiKey: "${A}", headers: {X-B: "${B}", X-C: "written out"}}
  fine: {baseUrl: "http://h/v1", apiKey: "${FINE}"}
mcp:
  servers:
    notes: {command: x, env: {TOKEN: "${C}"}}
    web: {url: "http://h/mcp", headers: {Authorization: "Bearer ${D}"}}
    "off": {command: x, env: {TOKEN: "${E}"}, enabled: false}
"""
    config, _ = parse(text, {"FINE": "k"})
    assert [problem.path for problem in unresolved_secrets(config)] == [
        "providers.cloud.apiKey",
        "providers.cloud.headers.X-B",
        "mcp.servers.notes.env.TOKEN",
        "mcp.servers.web.headers.Authorization",
    ]
