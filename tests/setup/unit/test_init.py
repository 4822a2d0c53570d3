"""``klaw init`` through the real command line, in temporary homes: English and Russian, twice, and ``--from``."""

import json
import os
import shlex
import stat
from subprocess import CompletedProcess

import pytest
import trio

from klaw.agent.workspace import Workspace
from klaw.config.load import load, parse
from klaw.config.services import OTHER, SERVICES
from klaw.domain.names import LOCAL_USER
from klaw.domain.text import RECALL_HEADER
from klaw.domain.tokens import estimate
from klaw.setup import answers
from klaw.setup.answers import ChosenModel, Names, SetupRefused
from klaw.setup.make import FILES, config_lines, config_text, template
from tests.support.dialogue import dialogue
from tests.support.llm_server import serve_llm, text_reply
from tests.support.processes import KLAW, completed
from tests.support.services.openai import OpenAiService, openai_rows


def environ(**more):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KLAW_", "XDG_", "LC_", "LANG"))}
    return {**kept, "LANG": "C.UTF-8", **more}


def init(home, *options, fails=False, **more):
    ran = trio.run(completed, [*KLAW, "init", "--home", str(home), *options], b"", environ(**more))
    done = CompletedProcess(ran.args, ran.returncode, ran.stdout.decode(), ran.stderr.decode())
    assert (done.returncode != 0) is fails, done.stderr
    assert "Traceback" not in done.stderr
    return done


def snapshot(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("language", "said"), [("en", "Answer first"), ("ru", "Сначала ответ")])
def test_a_new_workspace_and_configuration(tmp_path, language, said):
    done = init(tmp_path / "home", "--yes", "--language", language, "--name", "Клава", "--user", "Anna $5")
    workspace = tmp_path / "home" / "workspace"
    assert sorted(path.name for path in workspace.iterdir()) == sorted([*FILES, "memory", "skills"])
    assert "Anna $5" in (workspace / "USER.md").read_text()
    read = Workspace(workspace, tmp_path / "home" / "data").read(LOCAL_USER)
    assert said in read.system_prompt
    assert "Клава" in read.system_prompt
    assert not read.problems
    assert stat.S_IMODE(workspace.stat().st_mode) == 0o700
    assert stat.S_IMODE((workspace / "SOUL.md").stat().st_mode) == 0o600
    config, warnings = load(tmp_path / "home" / "config" / "engine.yaml", {})
    assert (config.routing.default_provider, warnings) == ("local", [])
    assert not config.topics.enabled
    assert "made     SOUL.md" in done.stdout
    assert "klaw serve" in done.stdout


def test_the_terminal_chooses_the_language(tmp_path):
    init(tmp_path, "--yes", LANG="ru_RU.UTF-8")
    assert "Долгая память" in (tmp_path / "workspace" / "MEMORY.md").read_text()


def test_twice_is_as_once_and_nothing_is_overwritten(tmp_path):
    init(tmp_path, "--yes")
    (tmp_path / "workspace" / "SOUL.md").write_text("my own")
    (tmp_path / "workspace" / "USER.md").unlink()
    (tmp_path / "config" / "engine.yaml").write_text("{}")
    before = snapshot(tmp_path)
    report = json.loads(init(tmp_path, "--yes", "--language", "ru", "--json").stdout)
    outcomes = {step["path"]: step["outcome"] for step in report["files"]}
    assert outcomes == dict.fromkeys([*FILES, "memory/", "skills/"], "kept") | {"USER.md": "made"}
    assert report["config"]["outcome"] == "kept"
    after = snapshot(tmp_path)
    assert {name: after[name] for name in before} == before
    assert set(after) - set(before) == {"workspace/USER.md"}


def test_a_dry_run_writes_nothing(tmp_path):
    done = init(tmp_path / "home", "--yes", "--dry-run")
    assert "made     SOUL.md" in done.stdout
    assert not (tmp_path / "home").exists()


def test_a_provider_with_a_key_keeps_the_key_in_the_environment(tmp_path):
    done = init(tmp_path, "--yes", "--provider", "openrouter", "--model", "qwen/qwen3-32b")
    assert "  export OPENROUTER_API_KEY=YOUR-KEY\n" in done.stdout
    config, _ = load(tmp_path / "config" / "engine.yaml", {"OPENROUTER_API_KEY": "secret"})
    assert config.routing.default == "openrouter/qwen/qwen3-32b"
    assert config.makes_topics
    assert config.providers["openrouter"].base_url == SERVICES["openrouter"].base_url
    assert "secret" not in (tmp_path / "config" / "engine.yaml").read_text()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--yes", "--language", "de"), "--language"),
        (("--yes", "--name", "a\nb"), "--name"),
        (("--yes", "--user", "x" * 65), "--user"),
        (("--yes", "--provider", "nobody"), "--provider"),
        (("--yes", "--provider", "ollama"), "--model"),
        (("--yes", "--provider", "custom", "--model", "m"), "--base-url"),
        (("--yes", "--provider", "custom", "--model", "m", "--base-url", "ftp://x"), "--base-url"),
        (("--yes", "--provider", "openai", "--model", "m", "--key-env", "sk-123"), "--key-env"),
        (("--yes", "--model", "m"), "--model"),
        (("--yes", "--from", "/nowhere"), "--from"),
        ((), "--yes"),
    ],
)
def test_a_bad_answer_names_its_option_and_writes_nothing(tmp_path, options, said):
    done = init(tmp_path / "home", *options, fails=True)
    assert said in done.stderr
    assert not (tmp_path / "home").exists()


def test_a_place_that_cannot_be_is_named(tmp_path):
    (tmp_path / "файл").touch()
    done = init(tmp_path / "файл", "--yes", fails=True)
    assert f"{tmp_path}/файл/workspace: " in done.stderr
    assert "Traceback" not in done.stderr


NAMES = [("Language of the prompt files", "ru"), ("Name of the assistant [Klaw]: ", "Клава"), ("Your name", "Анна")]


async def on_terminal(home, *answers):
    return await trio.to_thread.run_sync(dialogue, ("init", "--home", str(home)), [*NAMES, *answers])


async def test_the_built_in_model_is_the_default(tmp_path):
    code, shown = await on_terminal(tmp_path, ("Its number or name [local]: ", ""))
    assert code == 0, shown
    assert "Анна" in (tmp_path / "workspace" / "USER.md").read_text()
    assert load(tmp_path / "config" / "engine.yaml", {})[0].routing.default_provider == "local"


async def test_a_model_is_connected_as_by_models_connect(tmp_path):
    """After answers that cannot be, nothing that was answered is lost; choices have numbers."""
    async with serve_llm(OpenAiService(openai_rows("small", "large"), key="sk-1")) as service:
        service.answer = lambda _: text_reply("Здравствуйте")
        place = list(answers.PROVIDERS).index("other") + 1
        code, shown = await on_terminal(
            tmp_path,
            ("Its number or name [local]: ", "olama"),
            ("did you mean ollama?", str(place)),
            ("Address of its API", "htp://x"),
            ("Key", "sk-1"),
            ("Address of its API", service.address),
            ("Key", "sk-1"),
            ("Its name, or a part of it", "l"),
            ("2 models have this in their names", "LARGE"),
            ("Use it for", "all"),
            ("Use it? yes or no", "да"),
        )
    assert code == 0, shown
    assert "“Здравствуйте”" in shown
    assert "sk-1" not in shown
    config, _ = load(tmp_path / "config" / "engine.yaml", {})
    assert config.routing.default == "other/large"
    assert config.providers["other"].api_key.reveal("key") == "sk-1"
    assert "Анна" in (tmp_path / "workspace" / "USER.md").read_text()


async def test_leaving_in_the_middle_writes_nothing(tmp_path):
    code, shown = await on_terminal(tmp_path / "home", ("Its number or name [local]: ", "\x04"))
    assert (code, (tmp_path / "home").exists()) == (130, False)
    assert "nothing was written" in shown


def test_what_comes_next_can_be_pasted(tmp_path):
    """Every line that is indented is a command of this very program, with the home that was given."""
    home = tmp_path / "my home"
    done = init(home, "--yes")
    commands = [line.strip() for line in done.stdout.partition("Next:")[2].splitlines() if line.startswith("  ")]
    assert [shlex.split(each)[1:] for each in commands] == [
        ["models", "pull", "--home", str(home)],
        ["models", "test", "--home", str(home)],
        ["serve", "--home", str(home)],
        ["chat", "--home", str(home)],
    ]


@pytest.fixture
def theirs(tmp_path):
    """A workspace such as OpenClaw makes, with everything in it that must not be copied."""
    state = tmp_path / "openclaw"
    folder = state / "workspace"
    (folder / "memory").mkdir(parents=True)
    (folder / "skills" / "weather" / "scripts").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / "node_modules").mkdir()
    (folder / "users" / "x").mkdir(parents=True)
    for name, text in {
        "AGENTS.md": "Работай хорошо.",
        "SOUL.md": "Be kind.",
        "MEMORY.md": "Anna likes tea.",
        "BOOTSTRAP.md": "Who am I?",
        "memory/2026-11-20.md": "A day.",
        "notes.md": "Notes",
        "skills/weather/SKILL.md": "---\nname: weather\ndescription: Use when: it rains\n---\nLook out.",
        "skills/weather/scripts/look.sh": "#!/bin/sh\n",
        ".env": "KEY=canary",
        ".git/config": "canary",
        "server.key": "canary",
        "node_modules/x.js": "canary",
        "users/x/USER.md": "canary",
    }.items():
        (folder / name).write_text(text)
    (folder / "skills" / "weather" / "scripts" / "look.sh").chmod(0o755)
    (folder / "large.md").write_text("x" * 1_000_001)
    (folder / "image.png").write_bytes(b"\x89PNG\0canary")
    (folder / "latin.md").write_bytes(b"caf\xe9")
    (state / "openclaw.json").write_text("canary")
    (folder / "out.md").symlink_to("../openclaw.json")
    (folder / "secret.md").symlink_to(".env")
    (folder / "inside.md").symlink_to("notes.md")
    os.mkfifo(folder / "pipe")
    return state


def test_taking_over_a_workspace(tmp_path, theirs):
    before = snapshot(theirs / "workspace" / "memory")
    home = tmp_path / "home"
    dry = json.loads(init(home, "--yes", "--from", str(theirs), "--dry-run", "--json").stdout)
    assert not home.exists()
    (home / "workspace").mkdir(parents=True)
    (home / "workspace" / "SOUL.md").write_text("mine")
    (home / "workspace" / "AGENTS.md").write_text("Работай хорошо.")
    report = json.loads(init(home, "--yes", "--from", str(theirs), "--json").stdout)
    steps = {step["path"]: (step["outcome"], step["why"]) for step in report["files"]}
    taken = {path for path, (outcome, _) in steps.items() if outcome == "taken"}
    assert taken == {
        "MEMORY.md",
        "memory/2026-11-20.md",
        "notes.md",
        "inside.md",
        "skills/weather/SKILL.md",
        "skills/weather/scripts/look.sh",
    }
    assert taken | {"AGENTS.md", "SOUL.md"} == {step["path"] for step in dry["files"] if step["outcome"] == "taken"}
    assert steps["SOUL.md"] == ("kept", "Klaw's own is different")
    assert steps["AGENTS.md"][0] == "same"
    skipped = {path: why for path, (outcome, why) in steps.items() if outcome == "skipped"}
    assert set(skipped) == {
        *(".env", ".git/", "server.key", "node_modules/", "users/", "large.md", "image.png", "latin.md"),
        *("out.md", "secret.md", "pipe", "BOOTSTRAP.md"),
    }
    assert "secrets" in skipped[".env"]
    assert "secrets" in skipped["secret.md"]
    assert skipped["large.md"] == "is larger than 1000000 bytes"
    assert skipped["image.png"] == "is binary"
    assert "leads out" in skipped["out.md"]
    workspace = home / "workspace"
    assert not any(b"canary" in data for data in snapshot(home).values())
    assert (workspace / "SOUL.md").read_text() == "mine"
    assert not (workspace / "inside.md").is_symlink()
    assert stat.S_IMODE((workspace / "skills" / "weather" / "scripts" / "look.sh").stat().st_mode) == 0o700
    assert not (workspace / "IDENTITY.md").exists()
    assert snapshot(theirs / "workspace" / "memory") == before
    again = json.loads(init(home, "--yes", "--from", str(theirs), "--json").stdout)
    assert not any(step["outcome"] in ("taken", "made") for step in again["files"])


def test_a_folder_that_is_no_workspace_or_klaws_own_is_refused(tmp_path):
    home = tmp_path / "home"
    init(home, "--yes")
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "empty", home / "workspace", home):
        assert "--from" in init(home, "--yes", "--from", str(folder), fails=True).stderr


@pytest.mark.parametrize("language", answers.LANGUAGES)
def test_templates_fit_what_klaw_does(language):
    texts = {name: template(language, name, Names(language=language)) for name in FILES}
    assert RECALL_HEADER in texts["AGENTS.md"]
    assert answers.DEFAULT_NAME in texts["IDENTITY.md"]
    assert all(line.startswith("#") for line in texts["HEARTBEAT.md"].splitlines())
    assert sum(map(estimate, texts.values())) < 600


def test_the_configuration_keeps_odd_names():
    model = ChosenModel(provider="custom", model="a$b:c#d", base_url="http://h/$v1")
    config, _ = load_text(config_text(model))
    assert config.routing.default == "custom/a$b:c#d"
    assert config.providers["custom"].base_url == "http://h/$v1"


def load_text(text):
    from klaw.config.load import parse

    return parse(text, {})


@pytest.mark.parametrize("provider", [name for name in answers.PROVIDERS if name != OTHER])
def test_every_service_makes_a_valid_configuration(provider):
    model = "" if provider == "local" else "m"
    checked = answers.model(provider=provider, model=model, base_url="", key_env=None)
    config, warnings = load_text(config_text(checked).replace("${", "$${"))
    assert config.routing.default_provider == provider
    assert not warnings
    if provider != "local":
        assert config.providers[provider].type == SERVICES[provider].type


def test_a_model_of_the_built_in_provider_is_no_answer():
    with pytest.raises(SetupRefused, match="--key-env"):
        answers.model(provider="local", model="", base_url="", key_env="KEY")


def test_a_small_board_gets_a_small_configuration_and_no_built_in_model(tmp_path):
    for provider in ([], ["--provider", "local"]):
        assert "--provider: one of ollama" in init(tmp_path / "klaw", "--yes", "--small", *provider, fails=True).stderr
    assert snapshot(tmp_path) == {}
    options = ["--provider", "ollama", "--model", "qwen3:0.6b"]
    assert "multilingual-e5-small" in init(tmp_path / "klaw", "--yes", "--small", *options).stdout
    config, warnings = load_text((tmp_path / "klaw" / "config" / "engine.yaml").read_text(encoding="utf-8"))
    assert (config.embedding.threads, config.embedding.batch_tokens, config.store.readers) == (1, 64, 1)
    assert config.routing.default == "ollama/qwen3:0.6b"
    assert not warnings


OLLAMA = ("--yes", "--provider", "ollama", "--model", "qwen3:8b")


@pytest.mark.parametrize("first", [("--yes",), ("--yes", "--provider", "deepseek", "--model", "x"), ()])
def test_a_configuration_that_nobody_changed_gets_the_model(tmp_path, first):
    """26.D2"""
    if first:
        init(tmp_path, *first)
    done = init(tmp_path, *OLLAMA)
    assert load(tmp_path / "config" / "engine.yaml", {})[0].routing.default == "ollama/qwen3:8b"
    assert "OLLAMA_CONTEXT_LENGTH=8192" in done.stdout
    again = json.loads(init(tmp_path, *OLLAMA, "--json").stdout)
    assert (again["config"]["outcome"], again["config"]["model"]) == ("kept", "set")


@pytest.mark.parametrize("text", ['{"context": {"slidingWindow": 6}}', "context: {slidingWindow: 6}\n", "{"])
def test_another_configuration_stays_and_the_command_fails_with_what_to_write(tmp_path, text):
    """26.D2"""
    file = tmp_path / "config" / "engine.yaml"
    file.parent.mkdir(mode=0o700)
    file.write_text(text)
    done = init(tmp_path, *OLLAMA, fails=True)
    assert (done.returncode, file.read_text()) == (1, text)
    assert "ollama/qwen3:8b" in done.stdout.partition("already exists: the model was NOT set.\n")[2]
    assert json.loads(init(tmp_path, *OLLAMA, "--json", fails=True).stdout)["config"]["model"] == "not set"


def test_the_lines_that_are_to_be_written_make_a_configuration(tmp_path):
    model = ChosenModel(provider="ollama", model="qwen3:8b", base_url="http://127.0.0.1:11434/v1")
    as_json = "\n".join(config_lines(model, small=False, like='{"a": 1}'))
    as_yaml = "\n".join(config_lines(model, small=True, like="a: 1"))
    for text in (f'{{"context": {{"slidingWindow": 6}},{as_json}}}', f"context: {{slidingWindow: 6}}\n{as_yaml}\n"):
        found, _ = parse(text, {})
        assert (found.routing.default, found.context.sliding_window) == ("ollama/qwen3:8b", 6)


def test_nothing_is_set_where_nothing_was_asked_for(tmp_path):
    file = tmp_path / "config" / "engine.yaml"
    file.parent.mkdir(mode=0o700)
    file.write_text("{}")
    assert json.loads(init(tmp_path, "--yes", "--json").stdout)["config"]["model"] == "not asked"
