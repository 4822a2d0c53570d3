"""Changing keys in the text of a configuration: nothing else in it changes."""

import stat
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klaw.config.describe import value_of
from klaw.config.document import join_path, read_written, split_path
from klaw.config.edit import LAST_GOOD, UNSET, Draft, change_file, edited, value_at
from klaw.config.load import load
from klaw.errors import ConfigError
from tests.support.repository import REPOSITORY

SHIPPED = (REPOSITORY / "conf" / "engine.yaml").read_text()
OWN = """\
# My Klaw.
routing:
    default: cloud/big   # the good one
    fallback: [cloud/small]

# The account.
providers:
    cloud:
        baseUrl: https://llm.example/v1
        # Never in here.
        apiKey: ${CLOUD_KEY}
        models:
            "qwen3:8b": {tools: true}  # it can

autoRag: {topK: 5, enabled: true}
"""
HOME = """\
# it can
    home:
      baseUrl: http://127.0.0.1:11434/v1
      models:
        "a b":
          tools: true
"""


@pytest.mark.parametrize(
    ("changes", "before", "after"),
    [
        ({"routing.default": "cloud/small"}, "cloud/big ", "cloud/small "),
        ({"routing.fallback": ["a/b", "c/d:e"]}, "[cloud/small]", '[a/b, "c/d:e"]'),
        ({"routing.default": UNSET}, "    default: cloud/big   # the good one\n", ""),
        ({"autoRag.topK": 8}, "topK: 5", "topK: 8"),
        ({"autoRag.maxTokens": 70}, "enabled: true}", 'enabled: true, "maxTokens": 70}'),
        ({"autoRag.topK": UNSET}, "{topK: 5, enabled", "{enabled"),
        ({"autoRag.enabled": UNSET}, "5, enabled: true}", "5}"),
        ({"autoRag": UNSET}, "autoRag: {topK: 5, enabled: true}\n", ""),
        ({'providers.cloud.models["qwen3:8b"].images': True}, "{tools: true}", '{tools: true, "images": true}'),
        ({"providers.cloud.timeoutSeconds": 5}, "# it can\n", "# it can\n        timeoutSeconds: 5\n"),
        ({"providers.cloud.apiKey": "${file:/k}"}, "${CLOUD_KEY}", '"${file:/k}"'),
        ({"providers.cloud.apiKey": UNSET}, "        apiKey: ${CLOUD_KEY}\n", ""),
        (
            {"providers.home": {"baseUrl": "http://127.0.0.1:11434/v1", "models": {"a b": {"tools": True}}}},
            "# it can\n",
            HOME,
        ),
        ({"logging.level": "debug"}, "true}\n", "true}\nlogging:\n  level: debug\n"),
        ({"routing.tasks.topics": []}, "[cloud/small]\n", "[cloud/small]\n    tasks:\n      topics: []\n"),
    ],
)
def test_only_the_lines_of_the_key_change(changes, before, after):
    assert OWN.count(before) == 1
    assert edited(OWN, changes) == OWN.replace(before, after)


def test_an_object_replaces_what_is_there_key_by_key():
    """So the comments beside what stays stay, too."""
    made = edited(OWN, {"providers.cloud": {"baseUrl": "https://other.example", "apiKey": "${CLOUD_KEY}"}})
    assert "# Never in here." in made
    assert "models" not in made
    assert "https://other.example" in made


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "# nothing yet", "---\n", "{}\n", "{\n}\n"])
def test_an_empty_file_gets_its_first_key(text):
    made = edited(text, {"autoRag.topK": 3, "autoRag.enabled": False})
    assert read_written(made) == {"autoRag": {"topK": 3, "enabled": False}}
    assert made.startswith(text.rstrip("{}\n"))


def test_an_empty_section_and_an_empty_value_are_filled():
    assert edited("autoRag:   # recall\n", {"autoRag.topK": 3}) == "autoRag:\n  topK: 3   # recall\n"
    assert edited("providers: {}\n", {"providers.x.baseUrl": "http://x"}) == "providers:\n  x:\n    baseUrl: http://x\n"
    assert edited("routing:\n  default:\n", {"routing.default": "a/b"}) == "routing:\n  default: a/b\n"


def test_what_was_taken_out_last_leaves_no_empty_section():
    assert edited("# a\nautoRag:\n  topK: 3\n# b\n", {"autoRag.topK": UNSET}) == "# a\n# b\n"


def test_json_stays_json():
    import json

    text = json.dumps({"autoRag": {"topK": 5}, "providers": {}}, indent=2)
    made = edited(
        text, {"autoRag.enabled": False, "providers.x": {"baseUrl": "http://x"}, "logging": {"level": "info"}}
    )
    assert json.loads(made) == {
        "autoRag": {"topK": 5, "enabled": False},
        "providers": {"x": {"baseUrl": "http://x"}},
        "logging": {"level": "info"},
    }
    assert made.startswith('{\n  "autoRag": {\n    "topK": 5,\n    "enabled": false\n  }')


def test_line_ends_of_windows_stay():
    made = edited("autoRag:\r\n  topK: 3\r\n", {"autoRag.enabled": False, "logging.level": "info"})
    assert made == "autoRag:\r\n  topK: 3\r\n  enabled: false\r\nlogging:\r\n  level: info\r\n"


@pytest.mark.parametrize(
    "value", ["no", "1", "null", "", " x", "a: b", "a #b", "${X}", "$$", "ключ", "a\nb", "🙂\u2028", "x:"]
)
def test_any_text_is_read_as_it_was_given(value):
    assert value_at(edited(OWN, {"routing.default": value}), "routing.default") == value


@pytest.mark.parametrize("path", ["", ".", "a.", "a..b", 'a["x', "a[0]", "a.b]"])
def test_a_malformed_path_is_named(path):
    with pytest.raises(ConfigError, match="must be a key path"):
        edited(OWN, {path: 1})


def test_a_key_below_a_value_is_refused():
    with pytest.raises(ConfigError, match=r"routing\.default: is a text in the file, not a section"):
        edited(OWN, {"routing.default.x": 1})


def test_what_cannot_be_changed_in_place_is_refused_and_not_damaged():
    with pytest.raises(ConfigError, match="by hand"):
        edited("autoRag: {topK: 5 # five\n  , enabled: true}\n", {"autoRag.topK": UNSET})


names = st.text(string.ascii_letters + string.digits + '. -_/"\\é', min_size=1, max_size=6)
scalars = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-9, 9) | st.text(max_size=8) | names
trees = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner.filter(lambda each: not isinstance(each, dict)), max_size=3)
        | st.dictionaries(names, inner, max_size=3)
    ),
    max_leaves=8,
)


@given(names)
def test_a_path_is_split_as_it_was_joined(name):
    assert split_path(join_path(join_path("", name), name)) == (name, name)


@given(st.dictionaries(names, st.dictionaries(names, trees, max_size=3), max_size=3), names, names, trees)
def test_any_change_of_any_tree_means_what_it_says(tree, section, name, value):
    """Also that of a text that ``edited`` itself has written."""
    text = edited("# head\n", {join_path("", each): below for each, below in tree.items()})
    path = join_path(join_path("", section), name)
    made = edited(text, {path: value})
    found = value_at(made, path)
    assert found == value or (found in (None, {}) and value in (None, {}))
    assert made.startswith("# head\n")
    assert value_at(edited(made, {path: UNSET}), path) is UNSET


@pytest.mark.parametrize(
    ("key", "words", "value"),
    [
        ("autoRag.topK", ["5"], 5),
        ("autoRag.enabled", ["false"], False),
        ("routing.default", ["5"], "5"),
        ("routing.fallback", ["a/b", "c/d"], ["a/b", "c/d"]),
        ("routing.fallback", ["[a/b]"], ["a/b"]),
        ("tools.web.ports", ["80", "443"], [80, 443]),
        ("llm.temperature", ["null"], None),
        ("llm.temperature", ["0.5"], 0.5),
        ("llm.temperature", ["${TEMPERATURE}"], "${TEMPERATURE}"),
        ("providers.x.extraBody", ['{"a": [1, true]}'], {"a": [1, True]}),
        ("providers.x.extraBody.top_k", ["5"], 5),
        ("providers.x.models.m.tools", ["true"], True),
    ],
)
def test_words_of_the_command_line_are_read_by_the_type_of_the_key(key, words, value):
    assert value_of(key, words) == value


def test_an_unknown_key_and_too_many_words_are_refused():
    with pytest.raises(ConfigError, match="unknown key"):
        value_of("autoRag.topX", ["5"])
    with pytest.raises(ConfigError, match="takes one value"):
        value_of("autoRag.topK", ["5", "6"])


# -- the file ---------------------------------------------------------------------------------------------------------


def test_the_shipped_file_is_changed_and_still_means_the_same(tmp_path: Path) -> None:
    file = tmp_path / "engine.yaml"
    file.write_text(SHIPPED)
    file.chmod(0o640)
    draft = change_file(file, {"autoRag.topK": 5, "providers.x.baseUrl": "http://x"})
    assert load(file)[0] == draft.config
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert (tmp_path / f"engine.yaml{LAST_GOOD}").read_text() == SHIPPED
    lines = set(file.read_text().splitlines()) ^ set(SHIPPED.splitlines())
    assert lines == {"  topK: 8", "  topK: 5", "providers: {}", "providers:", "  x:", "    baseUrl: http://x"}
    change_file(file, draft.before)
    assert load(file)[0] == load(REPOSITORY / "conf" / "engine.yaml")[0]


def test_a_change_that_is_wrong_leaves_the_file_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "engine.yaml"
    file.write_text(OWN)
    for changes, told in (
        ({"autoRag.topK": 0}, "autoRag.topK: must be >= 1"),
        ({"autoRag.topX": 1}, "autoRag.topX: unknown key"),
        ({"providers": UNSET}, "routing.default: the provider must be"),
        ({"providers.cloud.apiKey": "sk-123"}, "providers.cloud.apiKey: must be a reference"),
        ({"providers.cloud.headers": {"X-Key": "abc"}}, "must be a reference"),
    ):
        with pytest.raises(ConfigError, match=told) as refused:
            change_file(file, changes)
        assert "sk-123" not in str(refused.value)
        assert file.read_text() == OWN
    assert [each.name for each in tmp_path.iterdir()] == ["engine.yaml"]


def test_a_file_that_was_changed_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "engine.yaml"
    draft = Draft.of(file, {"autoRag.topK": 5})
    file.write_text("logging: {level: debug}\n")
    assert not draft.write()
    assert file.read_text() == "logging: {level: debug}\n"
    change_file(file, {"autoRag.topK": 5})
    assert read_written(file.read_text()) == {"logging": {"level": "debug"}, "autoRag": {"topK": 5}}


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "dotfiles.yaml", tmp_path / "engine.yaml"
    target.write_text("{}\n")
    link.symlink_to(target)
    change_file(link, {"autoRag.topK": 5})
    assert link.is_symlink()
    assert "topK" in target.read_text()


def test_a_new_file_is_private(tmp_path: Path) -> None:
    file = tmp_path / "config" / "engine.yaml"
    change_file(file, {"autoRag.topK": 5})
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_the_new_name_of_a_key_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    file = tmp_path / "engine.yaml"
    file.write_text("context:\n  subagentWindow: 3\n")
    change_file(file, {"context.subagentHistory": 4})
    assert read_written(file.read_text()) == {"context": {"subagentHistory": 4}}
