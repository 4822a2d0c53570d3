"""The schema, the shipped file, the page and the command say the same about every key."""

import json
import re

import pytest
import yaml

from klaw.cli.main import main
from klaw.config.describe import described, json_schema, show
from klaw.config.load import parse
from klaw.config.paths import Paths
from klaw.config.schema import EngineConfig
from klaw.errors import ConfigError
from tests.support.repository import REPOSITORY

SHIPPED = (REPOSITORY / "conf" / "engine.yaml").read_text(encoding="utf-8")
PAGE = (REPOSITORY / "docs" / "configuration.md").read_text(encoding="utf-8")


EVERY_PATH = [each.path for each in described()]


def paths_in(tree, prefix=""):
    for name, value in tree.items():
        yield f"{prefix}{name}"
        if isinstance(value, dict):
            yield from paths_in(value, f"{prefix}{name}.")


def shipped_example():
    """The commented provider of the shipped file, uncommented."""
    block = re.search(r"^#   cloud:\n(#     .*\n)+", SHIPPED, re.MULTILINE)
    return "providers:\n" + re.sub(r"^#", "", block[0], flags=re.MULTILINE)


def shipped_servers():
    """The commented MCP servers of the shipped file, uncommented."""
    block = re.search(r"^#     notes:\n(#     .*\n)+", SHIPPED, re.MULTILINE)
    return "mcp:\n  servers:\n" + re.sub(r"^# ", "", block[0], flags=re.MULTILINE)


def shipped_endpoints():
    """The commented SPARQL endpoint of the shipped file, uncommented."""
    block = re.search(r"^#     museum:\n(#     .*\n)+", SHIPPED, re.MULTILINE)
    return "kb:\n  endpoints:\n" + re.sub(r"^# ", "", block[0], flags=re.MULTILINE)


def shipped_channel():
    """The commented account of a messenger of the shipped file, uncommented."""
    block = re.search(r"^#     telegram:\n(#     .*\n)+", SHIPPED, re.MULTILINE)
    return "channels:\n  accounts:\n" + re.sub(r"^# ", "", block[0], flags=re.MULTILINE)


def test_the_shipped_file_parses_to_the_defaults_without_a_warning():
    assert parse(SHIPPED, {}) == (EngineConfig(), [])


def test_the_shipped_file_has_every_key():
    given = set(paths_in(yaml.safe_load(SHIPPED)))
    example = yaml.safe_load(shipped_example())
    provider = example["providers"]["cloud"]
    given |= {f"providers.<name>.{name}" for name in provider}
    given |= {f"providers.<name>.models.<name>.{name}" for name in provider["models"]["big-model"]}
    servers = yaml.safe_load(shipped_servers())["mcp"]["servers"]
    given |= {f"mcp.servers.<name>.{name}" for server in servers.values() for name in server}
    given |= {f"mcp.servers.<name>.oauth.{name}" for name in servers["remote"]["oauth"]}
    endpoints = yaml.safe_load(shipped_endpoints())["kb"]["endpoints"]
    given |= {f"kb.endpoints.<name>.{name}" for name in endpoints["museum"]}
    accounts = yaml.safe_load(shipped_channel())["channels"]["accounts"]
    given |= {f"channels.accounts.<name>.{name}" for name in accounts["telegram"]}
    assert given == set(EVERY_PATH)


def test_the_shipped_examples_of_mcp_servers_work():
    made, _ = parse(shipped_servers(), {"SOME_TOKEN": "t"})
    assert made.mcp.servers["notes"].env["SOME_TOKEN"].reveal("") == "t"
    assert "Bearer" not in json.dumps(show(made))


def test_the_shipped_example_of_an_endpoint_works():
    made, _ = parse(shipped_endpoints(), {"MUSEUM_PASSWORD": "geheim"})
    assert made.kb.endpoints["museum"].password.reveal("") == "geheim"
    assert show(made)["kb"]["endpoints"]["museum"]["password"] == "***"


def test_the_shipped_example_of_a_channel_works():
    made, _ = parse(shipped_channel(), {"KLAW_CHANNEL_TELEGRAM_TOKEN": "geheim"})
    assert made.channels.accounts["telegram"].token.reveal("") == "geheim"
    assert show(made)["channels"]["accounts"]["telegram"]["token"] == "***"


@pytest.mark.parametrize("given", ["user: klaw", "password: secret"])
def test_an_endpoint_with_half_its_credentials_is_refused(given):
    with pytest.raises(ConfigError, match=r"kb\.endpoints\.museum: needs both user and password"):
        parse(f"kb: {{endpoints: {{museum: {{url: 'https://example.com/sparql', {given}}}}}}}", {})


def test_the_shipped_example_of_a_provider_works():
    made, _ = parse(shipped_example() + "\nrouting: {default: cloud/big-model}", {"CLOUD_API_KEY": "k"})
    assert made.providers["cloud"].models["big-model"].tools


def test_the_shipped_file_describes_every_key():
    """Each key is there with the very words of the schema, and behind them its limits."""
    comments = " ".join(" ".join(re.findall(r"^ *# +(.*)$", SHIPPED, re.MULTILINE)).split()).replace("# ", "")
    for each in described():
        _, found, behind = comments.partition(each.meaning)
        assert found, each.path
        kind = behind.partition(")")[0]
        assert set(re.findall(r"[\d.]+", each.type)) <= set(re.findall(r"[\d.]+", kind)), each.path


def test_the_page_names_every_section():
    table = PAGE.partition("## Every setting")[2].partition("\n## ")[0]
    assert {path for path in EVERY_PATH if "." not in path} <= set(re.findall(r"`(\w+)`", table))


def test_the_schema_keeps_types_limits_and_defaults():
    schema = json_schema()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    rag = schema["properties"]["autoRag"]
    assert rag["additionalProperties"] is False
    assert rag["properties"]["topK"] == {
        "description": "At most this many recalled messages in one context.",
        "type": ["integer", "string"],
        "pattern": r"^\$\{[^}]+\}$",
        "minimum": 1,
        "maximum": 100,
        "default": 8,
    }
    assert rag["properties"]["relevanceThreshold"]["exclusiveMinimum"] == 0
    assert schema["properties"]["context"]["properties"]["subagentWindow"]["deprecated"] is True
    provider = schema["properties"]["providers"]["additionalProperties"]
    assert "required" not in provider
    assert schema["properties"]["routing"]["properties"]["tasks"]["properties"]["topics"]["type"] == ["array", "string"]
    assert provider["properties"]["apiKey"]["writeOnly"] is True
    assert provider["properties"]["extraBody"]["additionalProperties"] == {}
    assert schema["properties"]["logging"]["properties"]["level"]["anyOf"][0]["enum"][0] == "debug"
    json.dumps(schema)


def test_show_uses_the_keys_of_the_file_and_hides_secrets():
    text = "providers: {c: {baseUrl: 'http://h/v1', apiKey: k-1, headers: {X: k-2}}}\nlocalModel: {path: /m.gguf}"
    shown = show(parse(text, {})[0])
    assert shown["providers"]["c"]["apiKey"] == shown["providers"]["c"]["headers"]["X"] == "***"
    assert shown["localModel"]["path"] == "/m.gguf"
    assert json.dumps(shown["shutdown"]) == '{"graceSeconds": 60, "embedDrainSeconds": 5}'
    assert "k-1" not in json.dumps(shown)


def test_what_show_gives_is_a_configuration_again():
    assert parse(json.dumps(show(EngineConfig())), {}) == (EngineConfig(), [])


# The command


def run(command, home, *, as_json=False):
    return main(["config", command, "--home", str(home), *["--json"] * as_json])


@pytest.fixture
def home(tmp_path):
    (tmp_path / "config").mkdir()
    return tmp_path


def test_a_file_that_is_named_has_to_be_there(home, capsys):
    assert main(["config", "check", "--home", str(home), "--config", str(home / "engin.json")]) == 2
    assert "--config: there is no such file" in capsys.readouterr().err


def test_check_says_ok_and_where(home, capsys):
    assert run("check", home) == 0
    assert capsys.readouterr().out == f"ok: {home}/config/engine.yaml (no such file; the defaults apply)\n"
    (home / "config" / "engine.yaml").write_text("context: {subagentWindow: 3}")
    assert run("check", home) == 0
    assert capsys.readouterr().out.splitlines() == [
        "warning: context.subagentWindow: is deprecated; call it context.subagentHistory",
        f"ok: {home}/config/engine.yaml",
    ]


def test_check_prints_every_problem_on_its_line(home, capsys):
    (home / "config" / "engine.yaml").write_text("chats: {idleSeconds: -1}\nx: 1")
    assert run("check", home) == 1
    assert capsys.readouterr().out.splitlines() == [
        "error: chats.idleSeconds: must be > 0, got -1",
        "error: x: unknown key",
    ]


def test_check_for_scripts(home, capsys):
    (home / "config" / "engine.yaml").write_text("x: 1")
    assert run("check", home, as_json=True) == 1
    assert json.loads(capsys.readouterr().out) == {
        "ok": False,
        "file": f"{home}/config/engine.yaml",
        "exists": True,
        "problems": [{"path": "x", "message": "unknown key"}],
        "warnings": [],
    }


def test_check_reports_places_that_cannot_be(capsys):
    assert run("check", "/" + "d" * 200) == 1
    assert "admin socket" in capsys.readouterr().err


def test_show_prints_yaml_or_json(home, capsys):
    assert run("show", home) == 0
    as_yaml = capsys.readouterr().out
    assert run("show", home, as_json=True) == 0
    assert parse(as_yaml, {}) == parse(capsys.readouterr().out, {}) == (EngineConfig(), [])


def test_show_refuses_a_broken_file(home, capsys):
    (home / "config" / "engine.yaml").write_text("[")
    assert run("show", home) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "not YAML or JSON" in captured.err


def test_schema_prints_json(home, capsys):
    assert run("schema", home) == 0
    assert json.loads(capsys.readouterr().out) == json_schema()


def test_every_key_is_described_in_words(capsys):
    def described(*words):
        return main(["config", "describe", *words]), *capsys.readouterr()

    code, out, _ = described()
    assert code == 0
    assert {line.partition(":")[0] for line in out.splitlines() if not line.startswith(" ")} == set(EVERY_PATH)
    assert "autoRag.topK: whole number, 1 to 100, default 8" in out
    assert "embedding.enabled: true or false, default true" in out
    code, out, _ = described("gateway.port")
    assert out.startswith("gateway.port: whole number, 0 to 65535, default 8181; a change needs a restart\n    ")
    code, out, _ = described("context", "--json")
    assert {each["path"] for each in json.loads(out)} == {path for path in EVERY_PATH if path.startswith("context")}
    code, _, errors = described("gateway.prot")
    assert (code, "did you mean gateway.port" in errors) == (1, True)


def test_the_old_name_is_read_and_the_new_one_wins(tmp_path, capsys):
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "engine.json").write_text("context: {slidingWindow: 6}")
    assert run("check", tmp_path) == 0
    assert capsys.readouterr().out == f"ok: {tmp_path}/config/engine.json\n"
    (tmp_path / "config" / "engine.yaml").write_text("{}")
    assert Paths.resolve(tmp_path).config_file.name == "engine.yaml"
    assert run("check", tmp_path) == 0
    out = capsys.readouterr().out
    assert out.splitlines().count("warning: engine.json: is not read: engine.yaml is there too; keep one of them") == 1


def test_the_page_names_what_needs_a_restart():
    """A section stands for all that is in it."""
    told = re.search(r"These take effect after a restart.*?: (.*?)\. All others", PAGE, re.DOTALL)[1]
    named = re.findall(r"`([^`]+)`", told)
    restart = {each.path for each in described() if each.restart}
    assert {path for path in restart if path.rpartition(".")[0] not in restart} == set(named)
