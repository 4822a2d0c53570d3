"""host_exec with real processes: exit, signals, deadline, floods, environment, the sandbox."""

import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from klaw.actor.threads import Threads
from klaw.config.tools import ExecToolConfig
from klaw.domain.names import LOCAL_USER, UserId
from klaw.errors import ToolRefused
from klaw.toolbox.host_exec import RISK, HostExec, host_exec
from klaw.toolbox.program import FLOOD_BYTES, HEAD_BYTES, TAIL_BYTES, Sandbox
from klaw.toolbox.spec import ToolContext, ToolFailure
from tests.support.waiting import HANG_S, until

BOB = UserId("bob")
CONTEXT = ToolContext(user=BOB, chat=None)


def runner(folder: Path, **config: Any) -> HostExec:
    settings = attrs.evolve(ExecToolConfig(enabled=True, sandbox="none"), **config)
    return HostExec(config=settings, workspace=folder, files=Threads("files", 1), sandbox=Sandbox(settings))


def python(code: str) -> str:
    return shlex.join([sys.executable, "-c", code])


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def processes() -> set[int]:
    return {int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()}


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


async def test_output_and_exit_code_come_back(tmp_path: Path) -> None:
    text = await runner(tmp_path).run(CONTEXT, "sh -c 'echo один; echo два >&2; exit 3'")

    assert isinstance(text, str)
    first, *rest = text.splitlines()
    assert first.startswith("[exit code 3, ")
    assert first.endswith("NOT in a sandbox]")
    assert rest == ["один", "два"]


async def test_runs_in_the_users_own_workspace(tmp_path: Path) -> None:
    text = await runner(tmp_path).run(CONTEXT, "pwd")
    assert str(text).endswith(f"]\n{tmp_path}/users/bob\n")


async def test_environment_holds_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUD_API_KEY", "planted-secret")
    monkeypatch.setenv("LANG", "ru_RU.UTF-8")

    text = str(await runner(tmp_path).run(CONTEXT, "env"))

    names = {line.partition("=")[0] for line in text.splitlines()[1:]}
    assert names <= {"LANG", "LC_ALL", "TZ", "TERM", "PATH", "HOME", "PWD", "SHLVL", "_"}
    assert "LANG=ru_RU.UTF-8" in text
    assert "planted-secret" not in text


async def test_signal_is_named(tmp_path: Path) -> None:
    text = await runner(tmp_path).run(CONTEXT, "sh -c 'kill -SEGV $$'")
    assert str(text).startswith("[killed by SIGSEGV")


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("no-such-program-here", "There is no program"),
        ("./missing", "could not be started"),
        ("date; date", "There is no shell"),
        ("echo 'open", "left open"),
        ("./folder", "could not be started"),
    ],
)
async def test_command_that_cannot_run_is_explained(tmp_path: Path, command: str, reason: str) -> None:
    (tmp_path / "users" / "bob" / "folder").mkdir(parents=True)

    with pytest.raises(ToolRefused, match=reason):
        await runner(tmp_path).run(CONTEXT, command)


async def test_program_has_no_input_and_no_terminal(tmp_path: Path) -> None:
    text = await runner(tmp_path).run(CONTEXT, "sh -c 'cat; tty; echo done'")
    assert "not a tty\ndone" in str(text)


async def test_deadline_kills_the_whole_group_and_keeps_what_was_said(tmp_path: Path) -> None:
    code = (
        "import os,signal,sys,time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = os.fork()\n"
        "print(os.getpid() if child else '', 'слово', flush=True) if child else None\n"
        "open('child' if not child else 'parent', 'w').write(str(os.getpid()))\n"
        "time.sleep(600)\n"
    )
    result = await runner(tmp_path, timeout_s=5).run(CONTEXT, python(code))

    assert isinstance(result, ToolFailure)
    assert "killed after 5 s" in result.text
    assert "слово" in result.text
    workspace = tmp_path / "users" / "bob"
    for name in ("parent", "child"):
        pid = int((workspace / name).read_text())
        await until(lambda pid=pid: not runs(pid))


async def test_cancelling_ends_the_program(tmp_path: Path) -> None:
    workspace = tmp_path / "users" / "bob"
    command = python(
        "import os,time; open('pid','w').write(str(os.getpid())); os.rename('pid','ready'); time.sleep(600)"
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(runner(tmp_path).run, CONTEXT, command)
        await until((workspace / "ready").exists)
        nursery.cancel_scope.cancel(reason="the turn was stopped")

    assert not runs(int((workspace / "ready").read_text()))


async def test_child_left_behind_neither_holds_the_call_nor_lives_on(tmp_path: Path) -> None:
    with trio.fail_after(HANG_S):
        text = await runner(tmp_path).run(CONTEXT, "sh -c 'sleep 600 & echo $! > pid; echo done'")

    assert "done" in str(text)
    pid = int((tmp_path / "users" / "bob" / "pid").read_text())
    await until(lambda: not runs(pid))


async def test_flood_is_cut_in_bounded_memory_and_killed(tmp_path: Path) -> None:
    result = await runner(tmp_path).run(CONTEXT, "yes да")

    assert isinstance(result, ToolFailure)
    assert f"wrote more than {FLOOD_BYTES} bytes" in result.text
    assert "bytes left out" in result.text
    assert len(result.text.encode()) < HEAD_BYTES + TAIL_BYTES + 1000


async def test_output_that_is_no_text_is_shown_as_far_as_it_can_be(tmp_path: Path) -> None:
    text = await runner(tmp_path).run(CONTEXT, python("import sys; sys.stdout.buffer.write(b'\\xff\\xfe ok')"))
    assert "\ufffd\ufffd ok" in str(text)


async def test_question_says_where_it_runs_before_the_command(tmp_path: Path) -> None:
    run = runner(tmp_path, allow=("date", "git log **"))
    spec = host_exec(run)
    assert spec.question is not None

    async def question(command: str) -> Any:
        assert spec.question is not None
        return await spec.question(CONTEXT, spec.bind({"command": command}))

    assert await question("date") is None
    assert await question("git log -3") is None
    assert await question("rm   'a b'") == f"[NOT in a sandbox{RISK}] rm 'a b'"
    with pytest.raises(ToolRefused, match="no shell"):
        await question("date; rm x")


async def test_required_sandbox_that_is_missing_runs_nothing(tmp_path: Path) -> None:
    run = runner(tmp_path, sandbox="bubblewrap", allow=("touch **",))
    broken = attrs.evolve(run, sandbox=Sandbox(run.config, program="/bin/false"))

    for attempt in (broken.question(CONTEXT, {"command": "touch x"}), broken.run(CONTEXT, "touch x")):
        with pytest.raises(ToolRefused, match="bubblewrap does not work here"):
            await attempt
    assert not (tmp_path / "users" / "bob" / "x").exists()


async def test_sandbox_that_does_not_work_is_not_used(tmp_path: Path) -> None:
    run = runner(tmp_path, sandbox="auto")
    for program in ("/bin/false", "/no/such/bwrap"):
        broken = attrs.evolve(run, sandbox=Sandbox(run.config, program=program))
        assert await broken.question(CONTEXT, {"command": "date"}) == f"[NOT in a sandbox{RISK}] date"


# -- bubblewrap ----------------------------------------------------------------------------------------------------


@pytest.fixture
async def sandboxed(tmp_path: Path) -> HostExec:
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed: the sandbox is not tested")
    run = runner(tmp_path, sandbox="auto")
    if not await run.sandbox.usable():
        pytest.skip("bubblewrap is not permitted on this machine: the sandbox is not tested")
    return run


async def test_sandbox_shows_the_workspace_and_nothing_else(sandboxed: HostExec, tmp_path: Path) -> None:
    (tmp_path / "users" / "bob").mkdir(parents=True)
    (tmp_path / "users" / "bob" / "mine.txt").write_text("моё")
    (tmp_path / "users" / "anna").mkdir()
    (tmp_path / "users" / "anna" / "hers.txt").write_text("hers")
    (tmp_path / "secret.txt").write_text("secret")

    text = str(await sandboxed.run(CONTEXT, "sh -c 'cat mine.txt; echo new > new.txt; pwd'"))
    assert "моё" in text
    assert "in a sandbox without network" in text
    assert (tmp_path / "users" / "bob" / "new.txt").read_text() == "new\n"
    for path in (tmp_path / "secret.txt", tmp_path / "users" / "anna" / "hers.txt", Path("/etc/shadow"), Path.home()):
        assert str(await sandboxed.run(CONTEXT, f"ls {path}")).startswith("[exit code 2"), path
    assert "[exit code 0" not in str(await sandboxed.run(CONTEXT, "touch /usr/x"))


async def test_sandbox_of_the_local_user_hides_the_others(sandboxed: HostExec, tmp_path: Path) -> None:
    (tmp_path / "users" / "anna").mkdir(parents=True)
    (tmp_path / "mine.txt").write_text("mine")

    text = str(await sandboxed.run(ToolContext(user=LOCAL_USER, chat=None), "find . -mindepth 1"))

    assert "mine.txt" in text
    assert "anna" not in text


async def test_sandbox_has_no_network_and_no_other_process(sandboxed: HostExec) -> None:
    code = "import os,socket; print(sorted(os.listdir('/sys/class/net')) if os.path.isdir('/sys/class/net') else [])"
    code += "; print(len([p for p in os.listdir('/proc') if p.isdigit()]))"
    code += "\ntry: socket.create_connection(('127.0.0.1', %d), 1)"
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listeners[0].socket.getsockname()[1]
        interpreter = shutil.which("python3", path="/usr/bin:/bin")
        if interpreter is None:
            pytest.skip("there is no system Python to look around in the sandbox with")
        probe = shlex.join([interpreter, "-c", code % port + "\nexcept OSError: print('no network')"])
        text = str(await sandboxed.run(CONTEXT, probe))
        await listeners[0].aclose()
        nursery.cancel_scope.cancel(reason="done")

    assert "no network" in text
    assert int(text.split("\n")[2]) <= 3


async def test_deadline_ends_everything_in_the_sandbox(sandboxed: HostExec, tmp_path: Path) -> None:
    short = attrs.evolve(sandboxed, config=attrs.evolve(sandboxed.config, timeout_s=1.0))
    before = processes()

    result = await short.run(CONTEXT, "sh -c 'setsid sleep 616 & setsid sleep 616 & sleep 616'")

    assert isinstance(result, ToolFailure)

    await until(lambda: not any(runs(pid) and "616" in command_line(pid) for pid in processes() - before))
