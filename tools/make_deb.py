"""Build a Debian package of Klaw for this machine's Debian and architecture (`make deb`).

It holds the wheel and the locked requirements in an environment of their own, /usr/lib/klaw, run by Debian's Python,
and the units. It starts nothing: `klaw service install` does that, as with every other installation.
"""

import argparse
import gzip
import os
import shutil
import subprocess
import sys
import tempfile
from email.utils import formatdate
from pathlib import Path, PurePosixPath
from textwrap import dedent

from klaw import __version__
from klaw.service.units import PACKAGED, UNITS, ServiceInstallation
from tools import make_dist

REPOSITORY = Path(__file__).parents[1]
PYTHON = "/usr/bin/python3"
HOME = Path("usr/lib/klaw")
MAINTAINER = f"{os.environ.get('DEBFULLNAME', 'Klaw')} <{os.environ.get('DEBEMAIL', 'klaw@localhost')}>"
OVERRIDES = {
    "embedded-library": "wheels bring the libraries that they were built and tested with",
    "unstripped-binary-or-object": "wheels are installed as they were published",
    "unstripped-static-library": "as above",
    "hardening-no-fortify-functions": "as above",
    "shared-library-lacks-prerequisites": "as above",
    "library-not-linked-against-libc": "as above",
    "custom-library-search-path": "as above: they find their own libraries",
    "executable-not-elf-or-script": "as above",
    "hardening-no-pie": "as above",
    "unusual-interpreter": "as above: modules that begin as scripts do",
    "national-encoding": "as above: a library's licence as it was published",
    "wrong-path-for-interpreter": "the command runs in its own environment",
    "bogus-mail-host": "who builds a package for others sets DEBEMAIL",
    "bogus-mail-host-in-debian-changelog": "as above",
    "no-manual-page": "klaw --help and /usr/share/doc/klaw describe the command",
}
"""Tags of lintian that do not hold for an environment made of wheels, with the reason."""
SCRIPTS = {
    "postinst": """\
        #!/bin/sh
        set -e
        if [ "$1" = configure ]; then
            py3compile -p klaw /usr/lib/klaw || true
            if [ -n "$2" ] && [ -d /run/systemd/system ]; then
                deb-systemd-invoke try-restart klaw.service || true
            fi
        fi
        """,
    "prerm": """\
        #!/bin/sh
        set -e
        if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
            klaw service uninstall || true
        fi
        py3clean -p klaw /usr/lib/klaw || true
        """,
}


def build(folder: Path) -> Path:
    """Build the package; returns its path."""
    architecture = _said("dpkg", "--print-architecture")
    version = _said(PYTHON, "-c", "import sys; print('%d.%d' % sys.version_info[:2])")
    with tempfile.TemporaryDirectory() as name:
        root = Path(name, "root")
        root.mkdir(mode=0o755)
        _environment(root / HOME, version, make_dist.build(Path(name)))
        (root / "usr/bin").mkdir()
        (root / "usr/bin/klaw").symlink_to("../lib/klaw/bin/klaw")
        installed = ServiceInstallation(program=PurePosixPath("/", HOME, "bin", "klaw"))
        for unit in UNITS:
            _write(root / str(PACKAGED).lstrip("/") / unit, installed.unit(unit))
        _documents(root)
        _control(root, architecture, version)
        for path in root.rglob("*"):
            if not path.is_symlink():
                programs = path.parent.name == "bin" or (path.parent.name == "DEBIAN" and path.name in SCRIPTS)
                path.chmod(0o755 if path.is_dir() or programs else 0o644)
        folder.mkdir(parents=True, exist_ok=True)
        made = folder / f"klaw_{__version__}_{architecture}.deb"
        environ = {"SOURCE_DATE_EPOCH": str(make_dist.epoch())} | os.environ
        command = ["dpkg-deb", "--root-owner-group", "-Zxz", "-z1", "--build", str(root), str(made)]
        subprocess.run(command, check=True, env=environ, stdout=subprocess.DEVNULL)
        return made


def _environment(home: Path, version: str, wheel: Path) -> None:
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", str(home)], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(home / "bin" / "python3"), "install", "--quiet", "--no-compile"]
    subprocess.run([*pip, "--require-hashes", "--requirement", str(REPOSITORY / "requirements.txt")], check=True)
    subprocess.run([*pip, "--no-deps", str(wheel)], check=True)
    library = home / "lib" / f"python{version}" / "site-packages"
    for each in home.rglob("__pycache__"):
        shutil.rmtree(each)
    for each in (*library.glob("*/direct_url.json"), *library.glob("*/RECORD")):
        each.unlink()  # they name the place where this was built
    for each in (home / "bin").iterdir():
        if each.name not in ("klaw", "python", "python3"):
            each.unlink()
    shutil.rmtree(home / "include", ignore_errors=True)
    (home / "lib64").unlink(missing_ok=True)
    (home / "bin" / "python3").unlink()
    (home / "bin" / "python3").symlink_to(f"../../..{PYTHON.removeprefix('/usr')}")
    klaw = home / "bin" / "klaw"
    klaw.write_text(f"#!/{HOME}/bin/python3\n" + klaw.read_text().partition("\n")[2])
    settings = (home / "pyvenv.cfg").read_text().splitlines()
    _write(home / "pyvenv.cfg", "".join(f"{line}\n" for line in settings if not line.startswith("command")))


def _documents(root: Path) -> None:
    folder = root / "usr/share/doc/klaw"
    license_text = (
        "License: Apache-2.0\n On Debian systems, /usr/share/common-licenses/Apache-2.0 has the whole text.\n"
    )
    head = "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\n"
    _write(folder / "copyright", f"{head}Files: *\nCopyright: 2026 the Klaw authors\n{license_text}")
    date = formatdate(make_dist.epoch(), localtime=False)
    entry = f"klaw ({__version__}) stable; urgency=medium\n\n  * CHANGELOG.md.gz beside this has all changes.\n\n"
    entry += f" -- {MAINTAINER}  {date}\n"
    for name, text in (("changelog.gz", entry), ("CHANGELOG.md.gz", (REPOSITORY / "CHANGELOG.md").read_text())):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    for each in sorted((REPOSITORY / "docs").glob("*.md")):
        _write(folder / each.name, each.read_text(encoding="utf-8"))
    _write(folder / "engine.yaml", (REPOSITORY / "conf" / "engine.yaml").read_text(encoding="utf-8"))
    lines = [f"# {why}\nklaw binary: {tag}" for tag, why in OVERRIDES.items()]
    _write(root / "usr/share/lintian/overrides/klaw", "\n".join(lines) + "\n")


def _control(root: Path, architecture: str, version: str) -> None:
    major, minor = version.split(".")
    kib = sum(path.lstat().st_size for path in root.rglob("*") if path.is_file()) // 1024
    python = f"python3 (>= {version}), python3 (<< {major}.{int(minor) + 1})"
    text = dedent(f"""\
        Package: klaw
        Version: {__version__}
        Architecture: {architecture}
        Maintainer: {MAINTAINER}
        Installed-Size: {kib}
        Depends: {python}, libc6, libgcc-s1, libstdc++6, libgomp1, passwd
        Recommends: bubblewrap
        Section: net
        Priority: optional
        Description: personal chat agent that remembers
         Klaw stands between you and a language model, stores every message
         durably, and searches the older part of a conversation before each
         answer. It runs as one process on a Raspberry Pi or anything larger;
         klaw service install sets it up.
        """)
    _write(root / "DEBIAN" / "control", text)
    for name, script in SCRIPTS.items():
        _write(root / "DEBIAN" / name, dedent(script))
        (root / "DEBIAN" / name).chmod(0o755)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _said(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=REPOSITORY / "dist")
    made = build(parser.parse_args().folder)
    print(f"{made}  ({made.stat().st_size / 1e6:.0f} MB)")
    if shutil.which("lintian") is None:
        print("lintian is not installed (Debian package lintian): the package is not checked")
        return 0
    return subprocess.run(["lintian", "--fail-on", "error,warning", "--allow-root", str(made)], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
