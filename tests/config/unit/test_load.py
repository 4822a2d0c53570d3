"""A configuration text becomes values, or all its problems."""

# ruff: noqa: UP031  YAML and JSON are full of braces, which str.format would want doubled

import json
import os
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from klaw.config.describe import json_schema
from klaw.config.environment import Secret
from klaw.config.llm import ProviderConfig
from klaw.config.load import load, parse
from klaw.config.memory import AutoRagConfig
from klaw.config.schema import EngineConfig
from klaw.errors import ConfigError, Problem
from tests.support.plugins.golden import Golden

URL = "https://llm.example.com/v1"


def problems(text, **environ):
    with pytest.raises(ConfigError) as caught:
        parse(text, environ)
    return {problem.path: problem.message for problem in caught.value.problems}


def config(text, **environ):
    made, warnings = parse(text, environ)
    assert warnings == []
    return made


@pytest.mark.parametrize("text", ["", "\n# nothing\n", "{}", "null", "---\n", "autoRag:\ngateway:\n", "\ufeff{}"])
def test_nothing_given_means_the_defaults(text):
    assert config(text) == EngineConfig()


def test_json_and_commented_yaml_mean_the_same():
    as_json = config('{\n\t"autoRag":\t{"topK": 5,\t"relevanceThreshold": 1e-1},\n\t"gateway": {"host": "::1"}}')
    as_yaml = config("# память\nautoRag:\n  topK: 5 # more\n  relevanceThreshold: 0.1\ngateway: {host: '::1'}\n")
    assert as_json == as_yaml
    assert as_yaml.auto_rag == AutoRagConfig(top_k=5, relevance_threshold=0.1)


def test_json_escapes_of_one_emoji_become_one_character():
    assert config(r'{"providers": {"c": {"baseUrl": "%s", "extraBody": {"u": "\ud83d\ude00"}}}}' % URL).providers[
        "c"
    ].extra_body == {"u": "😀"}


def test_all_problems_are_named_at_once(golden: Golden) -> None:
    found = problems(
        """
autoRag: {enabled: yes, topK: -1, topk: 4, maxTokens: 3.7, minMessageTokens: "${MISSING}"}
processing: {debounceMs: 20000}
gateway: [1]
llm: {temperature: .nan}
logging: {level: loud}
providers: {zai: {apiKey: 5}, local: {baseUrl: "http://h"}}
routing: {default: other/model}
nonsense: 1
"""
    )
    golden("config/problems", "".join(f"{key}: {text}\n" for key, text in found.items()))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ('"3"', "must be a whole number, got the text '3'"),
        ("3.0", "must be a whole number, got 3.0"),
        ("true", "must be a whole number, got true"),
        ("null", "must be a whole number, got null"),
        ("[3]", "must be a whole number, got a list"),
        ("{a: 3}", "must be a whole number, got a section"),
        ("010", "must be a whole number, got the text '010'"),
        ("0x10", "must be a whole number, got the text '0x10'"),
        ("1_0", "must be a whole number, got the text '1_0'"),
        ("101", "must be <= 100, got 101"),
        ("1e400", "must be a finite number (line 1)"),
        ("9" * 200, "must be <= 100, got a number"),
        ("9" * 5000, "is a number of more than 300 digits (line 1)"),
    ],
)
def test_an_int_key_takes_nothing_but_ints(value, message):
    assert problems("autoRag: {topK: %s}" % value) == {"autoRag.topK": message}


@pytest.mark.parametrize("value", ['"false"', "0", "no", "off", "True", "null"])
def test_a_bool_key_takes_nothing_but_bools(value):
    assert problems("autoRag: {enabled: %s}" % value)["autoRag.enabled"].startswith("must be true or false, got")


@pytest.mark.parametrize("value", ["5", "true", "1.5", "null", "[a]"])
def test_a_text_key_takes_nothing_but_texts(value):
    assert problems("gateway: {host: %s}" % value)["gateway.host"].startswith("must be a text, got")


def test_a_date_is_a_text():
    found = config("providers: {c: {baseUrl: '%s', extraBody: {d: 2026-01-01}}}" % URL)
    assert found.providers["c"].extra_body == {"d": "2026-01-01"}


def test_an_int_stands_for_a_number():
    assert config("llm: {temperature: 1}").llm.temperature == 1.0


@pytest.mark.parametrize(("value", "rule"), [("0", "> 0"), ("1.5", "<= 1"), ("-0.1", "> 0")])
def test_the_relevance_threshold_is_above_zero_and_up_to_one(value, rule):
    assert f"must be {rule}" in problems("autoRag: {relevanceThreshold: %s}" % value)["autoRag.relevanceThreshold"]
    assert config("autoRag: {relevanceThreshold: 1}").auto_rag.relevance_threshold == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[1, 2]", "the file must hold a mapping of sections, got a list"),
        ("just words", "the file must hold a mapping of sections, got a text"),
        ("a: [1", "line 1, column 6"),
        ("gateway:\n  port: 1\n bad: 2\n", "line 3, column 2"),
        ("a: \x07", "a character that is not allowed at line 1, column 4"),
        ("a: &x 1", "anchors and aliases"),
        ("*a", "anchors and aliases"),
        ("a: !!python/name:os.system x", "tags"),
        ("[" * 5000, "levels of nesting"),
        ("{}\n---\n{}", "expected a single document"),
    ],
)
def test_text_that_is_no_configuration_is_refused_with_its_place(text, words):
    found = problems(text)
    assert set(found) == {""}
    assert words in found[""]


def test_a_duplicate_key_is_named_with_both_lines():
    found = problems("gateway:\n  port: 1\n  host: x\n  port: 2\n")
    assert found == {"gateway.port": "the key is given twice, in line 2 and in line 4"}
    assert "gateway.port" in problems('{"gateway": {"port": 1, "port": 2}}')


def test_a_key_that_is_no_text_is_refused():
    assert problems("? [1]\n: 2") == {"": "a key must be a text (line 1)"}


def test_odd_names_are_quoted_in_key_paths():
    text = 'providers: {c: {baseUrl: "%s", models: {"a/b-4.5\\n": {}, "x.y": {tools: 1}}}}' % URL
    assert set(problems(text)) == {'providers.c.models["a/b-4.5\\n"]', 'providers.c.models["x.y"].tools'}


def test_references_take_the_type_of_their_key():
    made = config(
        """
gateway: {port: "${PORT}", messagesPerSecond: "${RATE:-5}", host: "${HOST:-localhost}"}
autoRag:
  enabled: ${RAG}
providers:
  cloud:
    baseUrl: https://${NAME}.example.com/v1
    apiKey: ${KEY}
    headers: {X-Price: "$$5 ${KEY}"}
    extraBody: {seed: "${PORT}", text: "a${PORT}", list: ["${RAG}", "${NAME}"]}
logging:
  level: ${LEVEL}
""",
        PORT="9000",
        RAG="false",
        NAME="llm",
        KEY="12345",
        LEVEL="debug",
        HOST="",
    )
    assert (made.gateway.port, made.gateway.messages_per_second, made.gateway.host) == (9000, 5.0, "localhost")
    assert made.auto_rag.enabled is False
    cloud = made.providers["cloud"]
    assert cloud.base_url == "https://llm.example.com/v1"
    assert cloud.api_key.reveal("") == "12345"
    assert cloud.headers["X-Price"].reveal("") == "$5 12345"
    assert cloud.extra_body == {"seed": 9000, "text": "a9000", "list": [False, "llm"]}
    assert type(cloud.extra_body["list"][1]) is str
    assert type(made.gateway.host) is type(cloud.base_url) is str
    assert made.logging.level == "debug"


def test_a_reference_is_filled_in_once():
    assert config("gateway: {host: '${A}'}", A="${B}").gateway.host == "${B}"


@pytest.mark.parametrize("text", ["${A", "${}", "${1A}", "${A-b}", "${A B}", "x${A:=b}"])
def test_a_malformed_reference_is_refused(text):
    assert "${NAME}" in problems(f"gateway: {{host: '{text}'}}", A="x")["gateway.host"]


@pytest.mark.parametrize("text", ["$A", "5$", "$(A)", "a$$$${A}"])
def test_other_dollar_signs_are_ordinary(text):
    assert config(f"gateway: {{host: '{text}'}}", A="x").gateway.host == text.replace("$$", "$")


def test_a_variable_of_the_wrong_type_is_named_without_its_value():
    found = problems("gateway: {port: '${P}', host: 'h ${P}'}\nautoRag: {topK: '${K}'}", P="hunter", K="7000")
    assert found["gateway.port"] == "must be a whole number, got a text (from a reference)"
    assert found["autoRag.topK"] == "must be <= 100, got a number (from a reference)"
    assert "hunter" not in str(found)


def test_a_variable_that_is_no_utf8_is_refused():
    assert "UTF-8" in problems("gateway: {host: '${H}'}", H="a\udcff")["gateway.host"]


SECRET = "sk-very-secret"


@pytest.mark.parametrize(
    "text",
    [
        "providers: {c: {baseUrl: '%(url)s', apiKey: '%(s)s with space'}}",
        "providers: {c: {baseUrl: '%(url)s', apiKey: ['%(s)s']}}",
        "providers: {c: {baseUrl: '%(url)s', apiKey: {a: '%(s)s'}}}",
        "providers: {c: {baseUrl: '%(url)s', headers: '%(s)s'}}",
        "providers: {c: {baseUrl: '%(url)s', headers: {X: ['%(s)s']}}}",
        'providers: {c: {baseUrl: "%(url)s", headers: {X: "%(s)s\\n"}}}',
        "providers: {c: {baseUrl: 'https://user:%(s)s@host/v1'}}",
        "providers: {c: '%(s)s'}",
        "providers: {c: {baseUrl: '%(url)s', apiKey: !%(s)s!x y}}",
        "providers: {c: {baseUrl: '%(url)s', apiKey: *%(s)s}}",
        "providers: {c: {baseUrl: '%(url)s', apiKey: &%(s)s }}",
        "providers: {c: {baseUrl: '%(url)s', apiKey: '%(s)s\n",
        "providers: {c: {baseUrl: '%(url)s', apiKey: \"\\%(s)s\"}}",
        "providers: {c: {baseUrl: '%(url)s', apiKey: '${%(s)s'}}",
    ],
)
def test_no_error_quotes_a_secret(text):
    with pytest.raises(ConfigError) as caught:
        parse(text % {"url": URL, "s": SECRET}, {})
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(caught.value.problems)


@pytest.mark.parametrize("key", ["", "with space", "line\\n", "ключ"])
def test_an_api_key_that_no_header_can_carry_is_refused(key):
    assert (
        "printable ASCII" in problems(f'providers: {{c: {{baseUrl: "{URL}", apiKey: "{key}"}}}}')["providers.c.apiKey"]
    )


def test_list_items_are_checked_one_by_one():
    found = problems("gateway: {allowedOrigins: ['https://a.example', 5, 'https://a.example/path']}")
    assert set(found) == {"gateway.allowedOrigins[1]", "gateway.allowedOrigins[2]"}
    assert problems("gateway: {allowedOrigins: 'https://a.example'}") == {
        "gateway.allowedOrigins": "must be a list, got a text"
    }
    assert config("gateway: {allowedOrigins: ['https://a.example']}").gateway.allowed_origins == ("https://a.example",)


def test_model_paths_are_absolute_or_under_the_home_folder(monkeypatch):
    monkeypatch.setenv("HOME", "/home/anna")
    made = config("localModel: {path: ~/m.gguf}\nembedding: {path: /models/e5}")
    assert (made.local_model.path, made.embedding.path) == (Path("/home/anna/m.gguf"), Path("/models/e5"))
    assert "absolute" in problems("localModel: {path: m.gguf}")["localModel.path"]


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".."])
def test_a_model_name_cannot_leave_its_folder(name):
    assert "embedding.model" in problems(f"embedding: {{model: '{name}'}}")


def test_routing_may_name_a_provider_with_slashes_in_the_model():
    made = config("routing: {default: c/meta/llama-3}\nproviders: {c: {baseUrl: '%s'}}" % URL)
    assert made.routing.default_provider == "c"
    assert made.providers == {"c": ProviderConfig(base_url=URL)}


def test_the_reply_reserve_leaves_room_for_the_context():
    assert "context.replyReserveTokens" in problems("context: {defaultBudgetTokens: 1024}")


def test_the_old_key_is_accepted_with_a_warning():
    made, warnings = parse("context: {subagentWindow: 7}", {})
    assert made.context.subagent_history == 7
    assert warnings == [
        Problem(path="context.subagentWindow", message="is deprecated; call it context.subagentHistory")
    ]


@pytest.mark.parametrize("text", ["facts: {daily: {enabled: true, at: '04:00'}}", "facts: {daily: null}", "facts:"])
def test_the_daily_pass_over_facts_is_accepted_without_effect(text):
    made, warnings = parse(text, {})
    assert made == EngineConfig()
    (warning,) = warnings
    assert str(warning) == (
        "facts.daily: no longer has an effect: facts are made from topics (topics.enabled); remove it"
    )
    assert problems("facts: {daily: {}, weekly: 1}").keys() == {"facts"}
    assert json_schema()["properties"]["facts"]["deprecated"] is True


def test_queries_that_a_model_wrote_are_accepted_without_effect():
    made, warnings = parse("kb: {sparql: {generate: true, maxRows: 9, timeoutSeconds: 5}}", {})
    assert made.kb.sparql.timeout_s == 5
    assert [str(warning) for warning in warnings] == [
        f"kb.sparql.{key}: no longer has an effect: graphs are searched without a model; remove it"
        for key in ("generate", "maxRows")
    ]
    described = json_schema()["properties"]["kb"]["properties"]["sparql"]["properties"]
    assert described["generate"]["deprecated"] is True


def test_the_old_and_the_new_key_together_are_an_error():
    assert problems("context: {subagentWindow: 7, subagentHistory: 7}") == {
        "context.subagentWindow": "is the old name of context.subagentHistory; give only one of them"
    }


def test_a_bad_value_under_the_old_key_is_named_as_written():
    assert problems("context: {subagentWindow: -7}") == {"context.subagentWindow": "must be >= 0, got -7"}


@pytest.mark.parametrize(
    "make", [lambda: AutoRagConfig(top_k=0), lambda: AutoRagConfig(relevance_threshold=float("nan"))]
)
def test_values_made_in_code_keep_the_same_rules(make):
    with pytest.raises(ValueError, match=r"topK must be >= 1|relevanceThreshold must be a finite number"):
        make()


def test_values_are_frozen():
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        EngineConfig().gateway.port = 1


def test_a_secret_shows_in_no_way_of_printing():
    secret = Secret(SECRET)
    provider = ProviderConfig(base_url=URL, api_key=secret, headers={"X": secret})
    shown = f"{secret} {secret!r} {provider} {provider!r} {attrs.asdict(provider)}"
    assert SECRET not in shown
    assert secret.reveal("") == SECRET


# Files


def file_problem(path):
    with pytest.raises(ConfigError) as caught:
        load(path, {})
    (problem,) = caught.value.problems
    return str(problem)


def test_a_missing_file_means_the_defaults(tmp_path):
    assert load(tmp_path / "none" / "engine.yaml", {}) == (EngineConfig(), [])


def test_unreadable_files_are_named(tmp_path):
    assert "Is a directory" in file_problem(tmp_path)
    binary = tmp_path / "latin"
    binary.write_bytes("host: caf\u00e9".encode("latin-1"))
    assert "latin is not UTF-8 text (byte 9)" in file_problem(binary)
    assert "Not a directory" in file_problem(binary / "engine.yaml")
    large = tmp_path / "large"
    large.write_bytes(b"#" * 1_048_577)
    assert "larger than 1048576 bytes" in file_problem(large)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_without_permission_is_named(tmp_path):
    closed = tmp_path / "engine.yaml"
    closed.write_text("{}")
    closed.chmod(0)
    assert f"cannot read {closed}: Permission denied" in file_problem(closed)


def test_a_refused_open_is_named(tmp_path, monkeypatch):
    def refuse(*_args, **_kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    assert "engine.yaml: Permission denied" in file_problem(tmp_path / "engine.yaml")


@pytest.mark.parametrize(
    ("mode", "key", "warned"), [(0o644, "sk-1", True), (0o600, "sk-1", False), (0o644, "${KEY}", False)]
)
def test_a_key_in_a_file_that_others_may_read_gives_a_warning(tmp_path, mode, key, warned):
    file = tmp_path / "engine.yaml"
    file.write_text(json.dumps({"providers": {"c": {"baseUrl": URL, "apiKey": key}}}))
    file.chmod(mode)
    _, warnings = load(file, {"KEY": "sk-2"})
    assert [warning.path for warning in warnings] == (["providers.c.apiKey"] if warned else [])


# Anything at all

WORDS = ["autoRag", "topK", "providers", "c", "baseUrl", "apiKey", "headers", "extraBody", "models", "tools", "context"]
WORDS += ["subagentWindow", "routing", "default", "gateway", "allowedOrigins", "localModel", "path", "logging", "level"]
KEYS = st.sampled_from(WORDS) | st.text(max_size=5)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["${A}", "~/x", URL])
TREES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)


def outcome(text):
    """Parse; any exception but ConfigError fails the test that asks."""
    try:
        return parse(text, {"A": "1"})[0], ()
    except ConfigError as exc:
        return None, exc.problems


@given(st.dictionaries(KEYS, TREES, max_size=5))
def test_any_json_document_parses_or_gives_config_error(tree):
    made, found = outcome(json.dumps(tree))
    assert isinstance(made, EngineConfig) != bool(found)
    assert all("\n" not in str(problem) for problem in found)


@given(st.text(st.characters(codec=None) | st.sampled_from("{}[]:,-#&*!|>'\"%@`\n\t $?~")))
def test_any_text_parses_or_gives_config_error(text):
    made, found = outcome(text)
    assert isinstance(made, EngineConfig) != bool(found)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("heartbeat: {intervalSeconds: 30}", "heartbeat.intervalSeconds"),
        ("subagents: {zone: Mars/Phobos}", "subagents.zone"),
        ("subagents: {zone: europe/berlin}", "subagents.zone"),
        ('subagents: {zone: "../etc/passwd"}', "subagents.zone"),
        ("subagents: {maxConcurrent: 0}", "subagents.maxConcurrent"),
    ],
)
def test_wrong_settings_of_subagents_are_named(text, path):
    assert list(problems(text)) == [path]


def test_zones_and_heartbeat_intervals():
    made, _ = parse("subagents: {zone: Europe/Berlin}\nheartbeat: {intervalSeconds: 1800}", {})
    assert (made.subagents.zone, made.heartbeat.interval_s) == ("Europe/Berlin", 1800)
    assert parse("subagents: {zone: system}\nheartbeat: {intervalSeconds: 60}", {})[1] == []


def test_routes_are_one_name_or_a_list_of_names():
    text = """
providers: {c: {baseUrl: "http://h/v1"}, claude: {type: anthropic, apiKey: k}}
routing: {default: c/m, fallback: claude/opus, tasks: {topics: [c/small, local/smollm2-135m-instruct]}}
"""
    made, warnings = parse(text, {})
    assert made.routing.fallback == ("claude/opus",)
    assert made.routing.tasks.topics == ("c/small", "local/smollm2-135m-instruct")
    assert made.routing.tasks.subagent == ()
    assert made.routing.uses_local
    assert made.providers["claude"].base_url is None
    assert not warnings


def test_every_route_must_lead_somewhere():
    text = """
providers: {c: {}, claude: {type: anthropic}}
routing: {default: c/m, fallback: [nowhere/m, local/other], tasks: {topics: claude, reranker: [gone/x]}}
"""
    with pytest.raises(ConfigError) as caught:
        parse(text, {})
    found = {problem.path: problem.message for problem in caught.value.problems}
    assert found["routing.tasks.topics[0]"].startswith("must have the form provider/model")
    assert found["providers.c.baseUrl"] == "is required for type 'openai'"
    with pytest.raises(ConfigError) as caught:
        parse(text.replace("topics: claude", "topics: claude/x"), {})
    found = {problem.path: problem.message for problem in caught.value.problems}
    assert "the provider must be" in found["routing.fallback[0]"]
    assert "localModel.model" in found["routing.fallback[1]"]
    assert "gone/x" in found["routing.tasks.reranker[0]"]


MCP_MISTAKES = [
    ("{}", "mcp.servers.a: needs command (a program) or url (a server behind HTTP)"),
    ("{command: x, url: 'http://x'}", "mcp.servers.a: has both command and url; give only one of them"),
    ("{command: x, headers: {A: b}}", "mcp.servers.a.headers: means nothing beside command"),
    ("{url: 'http://x', args: [y]}", "mcp.servers.a.args: means nothing beside url"),
    ("{url: 'http://user:key@x'}", "mcp.servers.a.url: must be an http:// or https:// address without user name"),
    ("{url: 'http://x/?key=1'}", "mcp.servers.a.url: must be an http:// or https:// address without user name"),
    ("{command: x, permission: admin}", "mcp.servers.a.permission: must be one of"),
    ("{command: x, env: {'1B': c}}", 'mcp.servers.a.env["1B"]: the name must be the name of an environment variable'),
    ("{command: x, timeoutSeconds: 0}", "mcp.servers.a.timeoutSeconds: must be > 0"),
    ("{comand: x}", "mcp.servers.a.comand: unknown key; did you mean command?"),
]


@pytest.mark.parametrize(("server", "problem"), MCP_MISTAKES)
def test_mistakes_in_mcp_servers(server, problem):
    with pytest.raises(ConfigError) as caught:
        parse(f"mcp: {{servers: {{a: {server}}}}}", {})
    assert any(str(found).startswith(problem) for found in caught.value.problems)


@pytest.mark.parametrize("name", ["a__b", "_a", "a_", "a b", "имя", "a" * 33, ""])
def test_names_of_mcp_servers(name):
    with pytest.raises(ConfigError, match="the name must be up to 32 letters"):
        parse(f"mcp: {{servers: {{'{name}': {{command: x}}}}}}", {})


def test_good_mcp_servers():
    made, _ = parse("mcp: {servers: {my-git_hub2: {command: x, tools: 'read_*', users: '*'}}}", {})
    assert made.mcp.servers["my-git_hub2"].tools == ("read_*",)


@pytest.mark.parametrize(
    ("text", "made", "warned"),
    [
        ("true", True, False),
        ("false", False, False),
        ('"${A}"', True, False),
        ("schema", False, True),
        ('"${B}"', False, True),
    ],
)
def test_tools_of_a_model_are_a_bool_and_schema_is_false_with_a_warning(text, made, warned):
    provider = f"{{baseUrl: {URL}, models: {{m: {{tools: {text}}}}}}}"
    config, warnings = parse(
        f"{{providers: {{p: {provider}}}, localModel: {{tools: {text}}}}}", {"A": "true", "B": "schema"}
    )
    assert config.providers["p"].models["m"].tools is config.local_model.tools is made
    found = [warning.path for warning in warnings if "no longer supported" in warning.message]
    assert found == (["localModel.tools", "providers.p.models.m.tools"] if warned else [])


@pytest.mark.parametrize("text", ["maybe", "1", "[]", "'true'"])
def test_tools_of_a_model_are_nothing_else(text):
    provider = f"{{baseUrl: {URL}, models: {{m: {{tools: {text}}}}}}}"
    with pytest.raises(ConfigError, match=r"providers\.p\.models\.m\.tools: must be true or false, got"):
        parse(f"providers: {{p: {provider}}}", {})
