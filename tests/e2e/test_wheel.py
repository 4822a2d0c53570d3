"""The wheel, installed outside of the checkout, serves, chats and shows the page."""

import os
import site
import subprocess
import sys
import venv
from functools import partial
from pathlib import Path

import httpx2
import pytest
import trio

from tests.support.llm_server import serve_llm, text_reply
from tests.support.server import clean_environ, served, write_home
from tests.support.waiting import HANG_S
from tools.make_dist import build


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the commands of an environment that has Klaw from its wheel, and its dependencies from ours: a
    line of a .pth file brings those, and not the .pth of ours by which the checkout is found. `make dist` names others,
    which have all of their own."""
    if "KLAW_TEST_INSTALLED" in os.environ:
        return Path(os.environ["KLAW_TEST_INSTALLED"])
    folder = tmp_path_factory.mktemp("wheel")
    venv.create(folder / "venv", with_pip=False)
    (library,) = (folder / "venv" / "lib").glob("python*/site-packages")
    (library / "dependencies.pth").write_text("\n".join(site.getsitepackages()))
    install = [sys.executable, "-m", "pip", "--python", str(folder / "venv" / "bin" / "python"), "install", "--quiet"]
    options = ["--no-index", "--no-deps", "--ignore-installed", "--disable-pip-version-check"]
    subprocess.run([*install, *options, str(build(folder))], check=True, timeout=HANG_S)
    return folder / "venv" / "bin"


def run(command: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(command), *arguments],
        cwd="/",
        env={**clean_environ(), **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S,
    )


async def test_a_server_from_the_wheel_chats_and_shows_the_page(installed: Path, tmp_path: Path) -> None:
    where = run(installed / "python", "-c", "import klaw; print(klaw.__file__)")
    assert Path(where.stdout.strip()).is_relative_to(installed.parent), where
    async with serve_llm() as llm:
        llm.respond = lambda _request: text_reply("A lime", ".")
        home = write_home(tmp_path / "home", llm=llm.url)
        made = run(installed / "klaw", "init", "--yes", "--language", "ru", "--home", str(home))
        assert made.returncode == 0, made.stderr
        async with served(home, start=False) as server:
            server.program = (str(installed / "klaw"),)
            await server.start()
            ask = partial(run, installed / "klaw", "chat", "Name a tree.", "--url", server.url)
            said = await trio.to_thread.run_sync(ask)  # the stub LLM answers meanwhile
            assert (said.returncode, said.stdout, said.stderr) == (0, "A lime.\n", "")
            async with httpx2.AsyncClient() as client:
                page = await client.get(f"http://127.0.0.1:{server.config['gateway']['port']}/")
            assert page.status_code == 200
            assert await server.terminate() == 0
    assert "Traceback" not in server.stderr


def test_every_module_of_the_wheel_can_be_imported(installed: Path) -> None:
    script = (
        "import importlib, pkgutil, klaw\n"
        "for each in pkgutil.walk_packages(klaw.__path__, 'klaw.'):\n"
        "    if each.name not in ('klaw.__main__', 'klaw.llm.local_server', 'klaw.toolbox.html_text'):\n"
        "        importlib.import_module(each.name)\n"
    )
    done = run(installed / "python", "-c", script, PATH=os.environ["PATH"])
    assert (done.returncode, done.stderr) == (0, "")
