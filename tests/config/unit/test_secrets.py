"""``secrets.env``: keys beside the configuration."""

import stat

import pytest

from klaw.config.edit import change_file
from klaw.config.load import load
from klaw.config.secrets import FILE, store, with_secrets
from klaw.errors import ConfigError


def key_of(folder, environ):
    config, warnings = load(folder / "engine.yaml", environ)
    return config.providers["cloud"].api_key.reveal("key"), [each.path for each in warnings]


def test_a_key_is_found_and_the_environment_wins(tmp_path):
    (tmp_path / "engine.yaml").write_text("providers: {cloud: {baseUrl: 'http://x', apiKey: '${CLOUD_KEY}'}}")
    assert store(tmp_path, "CLOUD_KEY", "sk-1") is None
    assert store(tmp_path, "CLOUD_KEY", "sk-2$'\"=") == "sk-1"
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    assert key_of(tmp_path, {}) == ("sk-2$'\"=", [])
    assert key_of(tmp_path, {"CLOUD_KEY": "of-the-shell"}) == ("of-the-shell", [])
    (tmp_path / FILE).chmod(0o644)
    assert key_of(tmp_path, {})[1] == [FILE]


def test_what_a_person_wrote_there_stays(tmp_path):
    (tmp_path / FILE).write_text('# mine\nexport A="a b"\n\nB=2\n')
    store(tmp_path, "C", "3")
    store(tmp_path, "B", "4")
    assert (tmp_path / FILE).read_text() == '# mine\nexport A="a b"\n\nC=3\nB=4\n'
    assert dict(with_secrets(tmp_path, {})) == {"A": "a b", "B": "4", "C": "3"}
    assert store(tmp_path, "B", None) == "4"
    assert "B" not in with_secrets(tmp_path, {})


@pytest.mark.parametrize("key", ["", "two words", "ключ", "a\nb"])
def test_what_is_no_key_is_refused_and_not_quoted(tmp_path, key):
    with pytest.raises(ConfigError) as refused:
        store(tmp_path, "A", key)
    assert not key or key not in str(refused.value)
    assert not (tmp_path / FILE).exists()


@pytest.mark.parametrize(("text", "said"), [("A=1\nsk-canary\n", "line 2"), ("A" * 70_000, "larger")])
def test_a_file_of_another_form_is_named_without_its_content(tmp_path, text, said):
    (tmp_path / FILE).write_text(text)
    (tmp_path / "engine.yaml").touch()
    with pytest.raises(ConfigError, match=said) as refused:
        load(tmp_path / "engine.yaml", {})
    assert "canary" not in str(refused.value)


def test_a_configuration_behind_a_link_has_its_keys_beside_the_link(tmp_path):
    target = tmp_path / "dotfiles" / "engine.yaml"
    target.parent.mkdir()
    target.write_text("providers: {cloud: {baseUrl: 'http://x', apiKey: '${CLOUD_KEY}'}}")
    store(target.parent, "CLOUD_KEY", "of-the-target")
    (tmp_path / "engine.yaml").symlink_to(target)
    store(tmp_path, "CLOUD_KEY", "sk-1")
    assert key_of(tmp_path, {}) == ("sk-1", [])
    change_file(tmp_path / "engine.yaml", {"autoRag.topK": 5})
    assert key_of(tmp_path, {}) == ("sk-1", [])


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / FILE).symlink_to("/etc/hostname")
    with pytest.raises(ConfigError, match="is a link"):
        with_secrets(tmp_path, {})
