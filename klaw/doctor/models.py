"""Checks of the models: there, whole, and the one that the stored vectors were made by."""

import importlib.util
from pathlib import Path

from klaw.config.paths import Paths
from klaw.config.schema import EngineConfig
from klaw.doctor.finding import Finding, ok, problem, warning
from klaw.errors import INSTALL_AGAIN, ModelError
from klaw.memory.embed.passage import vectors_id
from klaw.models.manifest import MANIFEST_FILE, find_damage, load_manifest


def check_embedding(paths: Paths, config: EngineConfig, stored: str | None, *, whole: bool) -> Finding:
    """The embedding model.

    Args:
        paths: of the installation.
        config: its configuration.
        stored: id of the model whose vectors are stored; None when there are none.
        whole: compare the checksums too.
    """
    if not config.embedding.enabled:
        return ok("embedding_model", "embedding.enabled is false: recall is full-text only")
    folder = config.embedding.path or paths.models_dir / config.embedding.model
    try:
        from klaw.memory.embed.describe import describe

        model_id = vectors_id(describe(folder).model_id)
        damage = _damage(folder) if whole else None
    except ModelError as error:
        return problem("embedding_model", f"{error}; recall is full-text only", "klaw models pull")
    if damage is not None:
        return problem("embedding_model", f"{folder}: {damage}", "klaw models pull --verify")
    if stored is not None and stored != model_id:
        return warning(
            "embedding_model",
            f"the vectors are of {stored}, the model here is {model_id}",
            "nothing: the next start with this model embeds all messages again; until then recall is full-text only",
        )
    return ok("embedding_model", model_id)


def check_local_llm(paths: Paths, config: EngineConfig, *, whole: bool) -> Finding | None:
    """The built-in language model; None when no route leads to it."""
    if not config.routing.uses_local:
        return None
    local = config.local_model
    if importlib.util.find_spec("xllamacpp") is None:
        return problem("local_model", "the package xllamacpp is not installed", INSTALL_AGAIN)
    file = local.path or paths.models_dir / local.model / "model.gguf"
    if not file.is_file():
        return problem("local_model", f"{file} is missing", "klaw models pull")
    try:
        damage = _damage(file.parent, verify=whole) if (file.parent / MANIFEST_FILE).is_file() else None
    except ModelError as error:
        damage = str(error)
    if damage is not None:
        return problem("local_model", f"{file.parent}: {damage}", "klaw models pull --verify")
    return ok("local_model", f"{local.model}")


def _damage(folder: Path, *, verify: bool = True) -> str | None:
    if not (folder / MANIFEST_FILE).is_file():
        return None  # the Hugging Face layout has no checksums to compare with
    return find_damage(folder, load_manifest(folder), verify=verify)
