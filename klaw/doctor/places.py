"""Checks of what lies around the data: configuration, tokens, folders, disk, clock, server, and models."""

import datetime as dt
import importlib.util
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from klaw.actor.clock import EARLIEST, from_iso
from klaw.config.load import load, unresolved_secrets
from klaw.config.paths import Paths
from klaw.config.run_as import belongs_to, not_usable
from klaw.config.schema import EngineConfig
from klaw.doctor.judge import Finding, ok, problem, warning
from klaw.domain.text import listed, plural
from klaw.errors import INSTALL_AGAIN, ConfigError, ModelError
from klaw.gateway.tokens import load_access, tokens_file
from klaw.memory.embed.passage import vectors_id
from klaw.models.manifest import MANIFEST_FILE, find_damage, load_manifest
from klaw.store.engine.commit_log import COMMIT_LOG
from klaw.store.engine.journal import LOCK_FILE
from klaw.upkeep import PLACES

FUTURE_S = 300.0
"""A newest message that is so much later than now shows a clock that went back."""


@attrs.frozen(kw_only=True)
class Server:
    """What a running server says about itself; without one both answers are None."""

    status: Mapping[str, Any] | None = None
    health: Mapping[str, Any] | None = None
    error: str | None = None
    """Why there is no answer."""


def check_config(paths: Paths, environ: Mapping[str, str]) -> tuple[EngineConfig, list[Finding]]:
    """The configuration, and the defaults when it cannot be used."""
    file = paths.config_file
    try:
        config, warnings = load(file, environ)
    except ConfigError as error:
        found = [
            problem("configuration", f"{file}: {each}", "correct it; `klaw config check` looks at it again")
            for each in error.problems
        ]
        return EngineConfig(), found
    if warnings:
        return config, [warning("configuration", f"{file}: {each}", "see docs/configuration.md") for each in warnings]
    text = f"{file} is valid" if file.exists() else f"there is no {file}: the defaults apply"
    if missing := unresolved_secrets(config):
        # Not a problem: keys may be in the service's environment alone. A running server says what it lacks.
        text += f"; not to be had here: {listed([str(each) for each in missing])}"
    return config, [ok("configuration", text)]


def check_tokens(paths: Paths) -> Finding:
    file = tokens_file(paths.config_dir)
    try:
        access = load_access(file)
    except ConfigError as error:
        return problem(
            "tokens", str(error), 'restore the file, or write {"tokens": []} into it and add the tokens again'
        )
    tokens = access.tokens
    if tokens and _is_open(file):
        return warning("tokens", f"{file} can be read by others", f"chmod 600 {file}")
    if not tokens and not access.local:
        remedy = "klaw token add USER, or klaw token allow-local"
        return warning("tokens", "none, and this machine may not connect without: nobody can", remedy)
    users = {token.user for token in tokens}
    text = f"{plural(len(tokens), 'token')} of {plural(len(users), 'user')}" if tokens else "none"
    return ok("tokens", text + ("; this machine needs none" if tokens and access.local else ""))


def check_folders(paths: Paths) -> Finding:
    """Folders exist, are ours, private and writable; so is all that stands in them."""
    data = paths.data_dir
    if foreign := list(not_usable(paths)):
        todo = belongs_to(_above(foreign[0], paths), foreign[0].lstat().st_uid)
        return problem("folders", f"of another user, and not usable: {listed([str(each) for each in foreign])}", todo)
    if not data.is_dir():
        return problem(
            "folders",
            f"there is no data folder {data}: Klaw has never run here",
            "give the right --home (or KLAW_HOME), or start it with `klaw serve`",
        )
    ours = [path for path in (data, paths.database, data / COMMIT_LOG, data / LOCK_FILE) if path.exists()]
    locked = [str(path) for path in ours if not os.access(path, os.R_OK | os.W_OK)]
    if locked:
        return problem("folders", f"cannot be read and written: {listed(locked)}", "chmod u+rw each, folders also u+x")
    owners = {path.stat().st_uid for path in ours}
    if len(owners) > 1:
        return problem("folders", f"{data} and its files belong to different users", f"chown -R USER {data}")
    loose = [str(path) for path in ours if _is_open(path)]
    if loose:
        return warning("folders", f"others may read {listed(loose)}", "chmod go-rwx each; the next start does it too")
    return ok("folders", f"{data} is private and can be written")


def _above(path: Path, paths: Paths) -> Path:
    """The folder of the installation that a path stands in."""
    folders = (paths.config_dir, paths.data_dir, paths.state_dir, paths.models_dir, paths.runtime_dir, paths.workspace)
    return next((each for each in folders if path.is_relative_to(each)), path)


def _is_open(path: Path) -> bool:
    return bool(stat.S_IMODE(path.stat().st_mode) & 0o077)


def check_clock(now: float, newest: str | None) -> Finding:
    """Whether the clock can be right.

    Args:
        newest: ISO time of the newest message.
    """
    moment = dt.datetime.fromtimestamp(now, dt.UTC)
    shown = f"{moment:%Y-%m-%d %H:%M:%S} UTC"
    todo = "set the clock, and let it be set by the network (timedatectl set-ntp true)"
    if now < EARLIEST:
        return problem("clock", f"it says {shown}, which cannot be", todo)
    if newest is not None and _seconds(newest) > now + FUTURE_S:
        return warning("clock", f"it says {shown}, and the newest message is of {newest}: it went back", todo)
    return ok("clock", shown)


def check_place(name: str, paths: Paths, now: float) -> list[Finding]:
    """How the disk or the backups are (``upkeep.PLACES``); nothing where there is nothing to say."""
    try:
        text, wrong = PLACES[name](paths, now)
    except OSError as error:
        return [warning(name, f"{error.filename} cannot be read: {error.strerror}", "correct its permissions")]
    if wrong is None:
        return [ok(name, text)] if text else []
    return [(problem if wrong.severe else warning)(name, wrong.text, wrong.todo)]


def _seconds(stored: str) -> float:
    """Unix seconds of a stored time; 0 for a damaged one, which the checks of the database tell about."""
    try:
        return from_iso(stored)
    except ValueError:
        return 0.0


def check_server(paths: Paths, server: Server, version: str) -> list[Finding]:
    """Whether a server runs, and what it says is degraded."""
    if server.status is None:
        return [_no_server(paths, server)]
    status, health = server.status, server.health or {}
    found = [_running(status, version)]
    if health.get("state") == "failing":
        found.append(
            problem("server", "its writer does not commit: messages are not stored", "restart it; see its log")
        )
    found += [
        warning("server", f"degraded: {each['code']}: {each['text']}", "see docs/operations.md, What is degraded")
        for each in status["degraded"]
    ]
    found += [
        warning(
            "LLM provider",
            f"{each['name']}: the last call failed: {each['error']}",
            "correct it; `klaw models test` asks again",
        )
        for each in status["llm"]["providers"]
        if each.get("error")
    ]
    return found


def _running(status: Mapping[str, Any], version: str) -> Finding:
    text = f"Klaw {status['version']} runs, pid {status['pid']}, {status['address'] or 'not listening'}"
    if status["version"] != version:
        return warning("server", f"{text}; this command is of {version}", "restart the server")
    return ok("server", text)


def _no_server(paths: Paths, server: Server) -> Finding:
    if is_in_use(paths.data_dir):
        return problem(
            "server",
            f"a server uses {paths.data_dir}, and its admin socket does not answer: {server.error}",
            "run this as its user; if it still does not answer, restart the server",
        )
    return ok("server", f"none runs: {server.error}" if server.error else "none runs")


def is_in_use(data_dir: Path) -> bool:
    """Whether a process holds the folder. Asks the kernel's list and takes no lock: a server may be starting."""
    try:
        inode = (data_dir / LOCK_FILE).stat().st_ino
        locks = Path("/proc/locks").read_text(encoding="ascii")
    except OSError:
        return False
    fields = (line.split() for line in locks.splitlines())
    return any("FLOCK" in line and any(field.endswith(f":{inode}") for field in line) for line in fields)


# -- models -----------------------------------------------------------------------------------------------------------


def check_embedding(paths: Paths, config: EngineConfig, stored: str | None, *, whole: bool) -> Finding:
    """The embedding model.

    Args:
        stored: id of the model whose vectors are stored; None when there are none.
        whole: compare the checksums too.
    """
    if not config.embedding.enabled:
        return ok("embedding_model", "embedding.enabled is false: recall is full-text only")
    if (named := config.endpoints.get("embeddings")) is not None:
        return _check_remote("/".join(named), stored)
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


def _check_remote(name: str, stored: str | None) -> Finding:
    """A provider's embedding model, as far as that can be seen without asking it."""
    if stored is not None and not stored.startswith(f"{name}@"):
        todo = "nothing: a running server embeds all messages again; until then recall is full-text only"
        return warning("embedding_model", f"the vectors are of {stored}, embedding.provider's model is {name}", todo)
    return ok("embedding_model", f"{name}, to which all messages are sent; `klaw models test {name}` asks it")


def check_reranker(config: EngineConfig) -> Finding | None:
    """The reranking model; None when no model is configured."""
    if (named := config.endpoints.get("rerank")) is None:
        return None
    name = "/".join(named)
    return ok("reranker", f"{name}, to which what recall found is sent; `klaw models test {name}` asks it")


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
