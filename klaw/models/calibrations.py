"""Where a model's calibration is kept: in its manifest, or, in a folder that came without one, in a file beside it.

``calibration.json`` names the model that was measured: when somebody puts other weights into the folder, it does not
count any more. The folder otherwise stays as its maker left it.
"""

from pathlib import Path

import attrs

from klaw.errors import ModelError
from klaw.models.manifest import MANIFEST_FILE, Calibration, load_manifest, structure, write_json, write_manifest

CALIBRATION_FILE = "calibration.json"


@attrs.frozen(kw_only=True)
class CalibrationFile:
    """The whole file."""

    model: str
    """Id of the model that was measured."""
    calibration: Calibration


def read_beside(folder: Path, model_id: str) -> Calibration | None:
    """The calibration in ``calibration.json``; None if there is none for this model.

    Raises:
        ModelError: the file is broken; the text names it and the key.
    """
    path = folder / CALIBRATION_FILE
    if not path.is_file():
        return None
    found = structure(path, CalibrationFile)
    return found.calibration if found.model == model_id else None


def store(folder: Path, model_id: str, calibration: Calibration) -> Path:
    """Keep a calibration with its model; returns the file.

    Raises:
        ModelError: the folder holds no usable manifest, or the file system refused; what was there is still there.
    """
    path = folder / (MANIFEST_FILE if (folder / MANIFEST_FILE).is_file() else CALIBRATION_FILE)
    try:
        if path.name == CALIBRATION_FILE:
            write_json(path, CalibrationFile(model=model_id, calibration=calibration))
            return path
        manifest = load_manifest(folder)
        if manifest.embedding is None:
            raise ModelError(f"{path}: {manifest.id} is not an embedding model")
        entry = attrs.evolve(manifest.embedding, calibration=calibration)
        write_manifest(folder, attrs.evolve(manifest, embedding=entry))
    except OSError as exc:
        raise ModelError(f"{path}: cannot be written ({exc.strerror or type(exc).__name__})") from exc
    return path
