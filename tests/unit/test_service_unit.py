"""conf/klaw.service: systemd accepts it, its times fit the code, and its hardening lets the models run."""

import configparser
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from klaw.actor.supervisor import ActorSpec
from klaw.cli.main import parser
from klaw.cli.output import EX_CONFIG
from klaw.config.schema import EngineConfig
from klaw.gateway import listener
from klaw.llm import local_model
from klaw.store.engine import database, writer
from tests.support.repository import REPOSITORY
from tests.support.waiting import HANG_S

UNIT = REPOSITORY / "conf" / "klaw.service"
PROGRAM = "/opt/klaw/bin/klaw"
UNITS_S = {"": 1, "s": 1, "min": 60}


def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[method-assign,assignment]  # keys keep their case
    parser.read_string(UNIT.read_text(encoding="utf-8"))
    return parser


def seconds(key: str) -> int:
    found = re.fullmatch(r"(\d+)(|s|min)", unit()["Service"][key])
    assert found is not None
    return int(found[1]) * UNITS_S[found[2]]


@pytest.mark.parametrize("manager", ["--system", "--user"])
def test_systemd_accepts_it(tmp_path: Path, manager: str) -> None:
    """Without a warning. The program need not be installed here: another one stands in."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("needs systemd-analyze (Debian package systemd)")
    text = UNIT.read_text(encoding="utf-8")
    assert f"ExecStart={PROGRAM} serve\n" in text
    copy = tmp_path / "klaw.service"
    copy.write_text(text.replace(PROGRAM, sys.executable), encoding="utf-8")
    environment = {"PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)}
    done = subprocess.run(
        [analyze, manager, "--man=no", "verify", str(copy)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        timeout=HANG_S,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_systemd_accepts_the_backup_and_its_timer(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("needs systemd-analyze (Debian package systemd)")
    for name in ("klaw-backup.service", "klaw-backup.timer"):
        text = (UNIT.parent / name).read_text(encoding="utf-8")
        (tmp_path / name).write_text(text.replace(PROGRAM, sys.executable), encoding="utf-8")
    done = subprocess.run(
        [analyze, "--man=no", "verify", str(tmp_path / "klaw-backup.timer"), str(tmp_path / "klaw-backup.service")],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S,
    )
    assert (done.returncode, done.stderr) == (0, "")
    unit = (UNIT.parent / "klaw-backup.service").read_text()
    words = re.findall(rf"^ExecStart=-?{PROGRAM} (.*)$", unit, re.MULTILINE)
    for each in words:
        assert parser(each.split()).parse_args(each.split()).command[1:] == tuple(each.split()[:2])


def test_systemd_accepts_it_with_the_drop_in_for_users(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("needs systemd-analyze (Debian package systemd)")
    drop_in = UNIT.with_name("klaw-user.conf").read_text(encoding="utf-8")
    units = tmp_path / "systemd" / "user"
    (units / "klaw.service.d").mkdir(parents=True)
    shutil.copy(UNIT, units)
    # %h is the home of the password file, whatever the environment says: this Python stands in.
    (units / "klaw.service.d" / "user.conf").write_text(
        re.sub(r"%h/\S+/klaw ", f"{sys.executable} ", drop_in), encoding="utf-8"
    )
    environment = {"PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    done = subprocess.run(
        [analyze, "--user", "--man=no", "verify", str(units / "klaw.service")],
        capture_output=True,
        text=True,
        check=False,
        env={**environment, "HOME": str(tmp_path)},
        timeout=HANG_S,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_stop_has_more_time_than_all_its_stages_may_take() -> None:
    """Stages come one after the other: listener, chats, model process, embeds, writer, connections ..."""
    config = EngineConfig()
    plain = attrs_default_budget()
    stages_s = [
        listener.STOP_S + 2,
        config.shutdown.grace_s,
        local_model.STOP_BUDGET_S + 3,
        config.shutdown.embed_drain_s,
        plain,  # the embedder after its drain
        writer.STOP_BUDGET_S,
        *[database.CLOSE_S] * (1 + config.store.readers),
        *[plain] * 3,  # admin socket, watchdog, health watch
    ]
    assert seconds("TimeoutStopSec") > sum(stages_s)


def attrs_default_budget() -> float:
    return float(ActorSpec.__attrs_attrs__.stop_budget_s.default)  # type: ignore[attr-defined]


def test_the_watchdog_waits_longer_than_two_checks() -> None:
    from klaw.admin import notify

    assert seconds("WatchdogSec") / 2 > 2 * notify.CHECK_S


def test_the_service_is_restarted_notified_and_watched() -> None:
    service = unit()["Service"]
    assert service["Type"] == "notify"
    assert service["NotifyAccess"] == "main"
    assert service["Restart"] == "on-failure"
    assert int(service["RestartPreventExitStatus"]) == EX_CONFIG
    assert service["Environment"] == "KLAW_HOME=%S/klaw ORT_DISABLE_TELEMETRY=1"
    assert service["StateDirectory"] == "klaw"
    assert service["LimitCORE"] == "0"


MODELS_RUN = """
import ctypes, json, mmap, os, subprocess, sys, urllib.request
from pathlib import Path
from klaw.llm import local_server
from klaw.memory.embed.model import EmbeddingModel

assert ctypes.CDLL(None).prctl(65, 1, 0, 0, 0) == 0  # PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN: inherited by children
try:
    mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
except PermissionError:
    pass
else:
    raise SystemExit("the kernel lets us write code")
model = EmbeddingModel.load(Path(sys.argv[1]), threads=1, batch_tokens=512)
assert model.embed(["привет, мир"], kind="query").shape == (1, model.dimension)
options = {"model": sys.argv[2], "name": "local", "context": 512, "parallel": 1, "threads": 1}
command = [sys.executable, "-P", local_server.__file__, json.dumps(options)]
child = subprocess.Popen(
    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, local_server.KEY_VARIABLE: "key"}
)
port = json.loads(child.stdout.readline())["port"]
body = json.dumps({"model": "local", "max_tokens": 2, "messages": [{"role": "user", "content": "Hi"}]}).encode()
headers = {"Authorization": "Bearer key", "Content-Type": "application/json"}
request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/chat/completions", data=body, headers=headers)
with urllib.request.urlopen(request, timeout=600) as answer:
    assert json.load(answer)["choices"]
child.stdin.close()
child.wait()
print("both models ran")
"""


def test_both_models_run_without_writable_code(embedding_model_dir: Path, local_llm_dir: Path) -> None:
    """What MemoryDenyWriteExecute forbids, ONNX Runtime and llama.cpp do not need."""
    assert unit()["Service"]["MemoryDenyWriteExecute"] == "yes"
    probe = "import ctypes; raise SystemExit(0 if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0) == 0 else 9)"
    if subprocess.run([sys.executable, "-c", probe], check=False).returncode:
        pytest.skip("needs Linux 6.3, which can forbid writable code to one process")
    done = subprocess.run(
        [sys.executable, "-c", MODELS_RUN, str(embedding_model_dir), str(local_llm_dir / "model.gguf")],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S,
        cwd=UNIT.parents[1],
    )
    assert done.stdout == "both models ran\n", done.stderr[-2000:]
