"""Every key of the configuration, on a running server: a valid value takes effect or waits for a restart that the
answer names; a wrong one is refused by name, and the file is as it was. The tests follow the schema: a new key is
tested without a line, unless it has a rule of its own."""

import gc
import weakref
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from klaw.app.app import App, running
from klaw.config.describe import described
from klaw.config.keys import file_key, rule_of
from klaw.config.load import load
from klaw.config.paths import Paths
from klaw.config.schema import EngineConfig
from klaw.operations.operation import OperationError
from klaw.operations.perform import read_call
from tests.support.admin import Commands, home, parts_of
from tests.support.waiting import HANG_S

__all__ = ("home",)

BASE = """\
# What a person wrote.
gateway: {host: 127.0.0.1}
routing: {default: stub/echo}   # the stub
embedding: {enabled: false}
providers:
  stub:
    baseUrl: http://127.0.0.1:9/v1
    models:
      echo: {tools: false}
mcp: {servers: {notes: {url: "http://127.0.0.1:9/mcp", enabled: false}}}
channels: {accounts: {bot: {type: telegram, token: "${HOME}", url: "http://127.0.0.1:9"}}}
kb: {endpoints: {museum: {url: "http://127.0.0.1:9/sparql"}}}
"""

VALID: Mapping[str, Any] = {
    "routing.default": "stub/other",
    "localModel.model": "another",
    "localModel.path": "/models/own.gguf",
    "embedding.path": "/models/own",
    "voice.transcribe": "stub/listens",
    "voice.speak": "stub/speaks",
    "voice.voice": "nova",
    "subagents.zone": "Europe/Berlin",
    "heartbeat.intervalSeconds": 3600,
    "gateway.host": "127.0.0.2",
    "gateway.port": 0,
    "gateway.http.publicUrl": "https://klaw.example.org",
    "gateway.http.prefix": "/klaw",
    "gateway.tls.certFile": "/etc/klaw.crt",
    "gateway.tls.keyFile": "/etc/klaw.key",
    "gateway.allowedOrigins": ["https://example.org"],
    "context.defaultBudgetTokens": 9000,
    "tools.exec.allow": ["ls **"],
    "tools.web.search.url": "http://127.0.0.1:8888",
    "tools.web.search.apiKey": "${HOME}",
    "kb.folders": ["/srv"],
    "providers.stub.baseUrl": "http://127.0.0.1:10/v1",
    "providers.stub.apiKey": "${HOME}",
    "mcp.servers.notes.url": "http://127.0.0.1:10/mcp",
    "mcp.servers.notes.roots": ["/srv"],
    "mcp.servers.notes.oauth.clientSecret": "${PATH}",
    "mcp.servers.notes.oauth.privateKey": "${PATH}",
    "mcp.servers.notes.oauth.issuer": "http://127.0.0.1:9",
    "channels.quiet": "22:00-07:00",
    "channels.accounts.bot.type": "matrix",
    "channels.accounts.bot.token": "${PATH}",
    "channels.accounts.bot.url": "http://127.0.0.1:10",
    "kb.endpoints.museum.url": "http://127.0.0.1:10/sparql",
}
"""Where any other value of the type would break a rule."""

TOGETHER: Mapping[str, Mapping[str, Any]] = {
    "autoRag.rerank.provider": {"autoRag.rerank.model": "m"},
    "autoRag.rerank.model": {"autoRag.rerank.provider": "stub"},
    "embedding.provider": {"embedding.model": "m"},
    "embedding.dimensions": {"embedding.provider": "stub", "embedding.model": "m"},
    "embedding.queryPrefix": {"embedding.provider": "stub", "embedding.model": "m"},
    "embedding.passagePrefix": {"embedding.provider": "stub", "embedding.model": "m"},
    "tools.web.search.service": {"tools.web.search.url": "http://127.0.0.1:8888"},
    "gateway.tls.certFile": {"gateway.tls.keyFile": "/etc/klaw.key"},
    "gateway.tls.keyFile": {"gateway.tls.certFile": "/etc/klaw.crt"},
    "kb.endpoints.museum.user": {"kb.endpoints.museum.password": "${HOME}"},
    "kb.endpoints.museum.password": {"kb.endpoints.museum.user": "anna"},
    "mcp.servers.notes.command": {"mcp.servers.notes.url": None},
    **{
        f"mcp.servers.notes.{name}": {"mcp.servers.notes.url": None, "mcp.servers.notes.command": "true"}
        for name in ("args", "env", "cwd")
    },
    **{
        f"mcp.servers.notes.oauth.{name}": {
            "mcp.servers.notes.oauth.clientId": "klaw",
            "mcp.servers.notes.oauth.clientSecret": "${HOME}",
            "mcp.servers.notes.oauth.issuer": "http://127.0.0.1:9",
        }
        for name in ("grant", "clientSecret", "privateKey")
    },
    **{
        f"providers.stub.models.echo.{name}": {
            "providers.stub.models.echo.inputPrice": 1,
            "providers.stub.models.echo.outputPrice": 1,
        }
        for name in ("inputPrice", "outputPrice", "cachedInputPrice", "cacheWritePrice")
    },
}
"""What only makes sense beside another key."""

TEXTS: Mapping[str, Any] = {"provider": "stub", "cwd": "/srv", "command": "true", "model": "m"}
"""Valid texts, by the last part of the key."""


@pytest.fixture
async def app(home: Path) -> AsyncIterator[App]:
    paths = Paths.resolve(home, {})
    paths.config_dir.mkdir(mode=0o700)
    paths.config_file.write_text(BASE)
    with trio.fail_after(HANG_S):
        async with running(load(paths.config_file)[0], paths) as app:
            yield app


@pytest.fixture
def commands(app: App) -> Commands:
    return Commands(parts_of(app))


async def asked(commands: Commands, name: str, **args: Any) -> dict[str, Any]:
    return await commands.run(read_call(name, args))


def other_value(setting: Mapping[str, Any]) -> Any:
    """A valid value that it does not have."""
    path, kind, now = setting["path"], setting["type"], setting["value"]
    name = path.rpartition(".")[2]
    if path in VALID:
        return VALID[path]
    if path.startswith("routing."):
        return ["stub/echo", "stub/other"]
    if setting["choices"]:
        return next(each for each in setting["choices"] if each != now)
    if kind == "boolean":
        return not now
    if kind in ("integer", "number"):
        least = setting["minimum"] if setting["minimum"] is not None else setting["above"]
        wanted = [now + 1, now - 1, now / 2] if now is not None else [least + 1]
        most = setting["maximum"]
        found = (
            each for each in wanted if each >= least and (most is None or each <= most) and each != setting["above"]
        )
        return next(int(each) if kind == "integer" else each for each in found)
    if kind == "array":
        return [7] if setting["items"] == "integer" else ["anna"]
    if kind == "object":
        return {"X-Y" if name == "headers" else "Y": "${HOME}" if setting["secret"] else 1}
    return "${HOME}" if setting["secret"] else TEXTS.get(name, "changed")


def wrong_value(setting: Mapping[str, Any]) -> Any:
    if setting["choices"]:
        return "nonsense"
    if setting["type"] in ("integer", "number") and setting["minimum"] is not None:
        return setting["minimum"] - 1
    if setting["type"] in ("array", "boolean", "integer", "number"):
        return {"a": 1}
    return 5


def names_it(told: str, path: str) -> bool:
    return told == path or told.startswith((f"{path}.", f"{path}["))


async def test_every_key_takes_effect_or_names_the_restart(app: App, commands: Commands) -> None:
    file, core = app.core.paths.config_file, app.core
    before = await asked(commands, "config_show")
    keys = [each for each in before["settings"] if each["type"] != "map"]
    assert len(keys) > 0.9 * sum(each.type != "section" for each in described())
    for setting in keys:
        path, value = setting["path"], other_value(setting)
        done = await asked(commands, "config_set", values={**TOGETHER.get(path, {}), path: value})
        shown = {each["path"]: each for each in (await asked(commands, "config_show"))["settings"]}[path]
        assert any(names_it(key, path) for key in done["changed"]), path
        if setting["restart"]:
            assert path in done["restart"], path
            assert shown["value"] == setting["value"], path
        else:
            assert not any(names_it(key, path) for key in done["restart"]), path
            assert shown["value"] == value or (setting["secret"] and "***" in str(shown["value"])), path
        assert shown["origin"] == ("environment" if "${" in str(value) else "file"), path
        assert load(file)[0] is not None
        await asked(commands, "config_undo")
        assert file.read_text().startswith("# What a person wrote.\n")
        assert "# the stub" in file.read_text()
    after = await asked(commands, "config_show")
    assert after["restart"] == []
    assert [(each["path"], each["value"]) for each in after["settings"]] == [
        (each["path"], each["value"]) for each in before["settings"]
    ]
    assert core.health.problems().keys() <= {"llm:stub", "channel:bot"}


async def test_a_wrong_value_of_any_key_is_refused_by_name(app: App, commands: Commands) -> None:
    file, config = app.core.paths.config_file, app.core.config
    for setting in (await asked(commands, "config_show"))["settings"]:
        with pytest.raises(OperationError) as refused:
            await asked(commands, "config_set", values={setting["path"]: wrong_value(setting)})
        assert refused.value.code == "bad_config"
        assert any(names_it(each.path, setting["path"]) for each in refused.value.problems), setting["path"]
        assert file.read_text() == BASE
    assert app.core.config is config


def kept_by_restart(cls: type) -> set[str]:
    return {field.name for field in attrs.fields(cls) if rule_of(field).restart}


async def test_no_part_keeps_a_section_that_is_not_in_effect_any_more(app: App, commands: Commands) -> None:
    """A part that does would go on with old settings; of values that it copied, the tests of that part know."""
    await asked(commands, "config_set", values={"autoRag.topK": 5})
    old = {
        file_key(field.name): weakref.ref(getattr(app.core.config, field.name))
        for field in attrs.fields(EngineConfig)
        if attrs.has(type(getattr(app.core.config, field.name))) and field.name not in kept_by_restart(EngineConfig)
    }
    await asked(commands, "config_set", values={"autoRag.topK": 6})
    gc.collect()
    assert [name for name, section in old.items() if section() is not None] == []
