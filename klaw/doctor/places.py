"""Checks of what lies around the database: configuration, tokens, folders, disk, clock, server, files, models."""

import datetime as dt
import importlib.util
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs

from klaw.actor.clock import EARLIEST, from_iso
from klaw.config.load import load, unresolved_secrets
from klaw.config.paths import Paths
from klaw.config.run_as import belongs_to, not_usable
from klaw.config.schema import EngineConfig
from klaw.doctor.judge import Finding, Level, ok, problem, warning
from klaw.domain.knowledge import SourceId
from klaw.domain.text import listed, plural
from klaw.errors import INSTALL_AGAIN, ConfigError, ModelError
from klaw.gateway.tokens import load_access, tokens_file
from klaw.memory.embed.passage import vectors_id
from klaw.models.manifest import MANIFEST_FILE, describe, find_damage, load_manifest
from klaw.store import attachments, originals
from klaw.store.engine.commit_log import COMMIT_LOG
from klaw.store.engine.journal import LOCK_FILE
from klaw.store.kinds.attachments import named
from klaw.store.kinds.knowledge import sources
from klaw.store.store import read_offline
from klaw.upkeep import PLACES

FUTURE_S = 300.0
"""A newest message that is so much later than now shows a clock that went back."""


@attrs.frozen(kw_only=True)
class Server:
    """What a running server says about itself, or why there is no answer."""

    status: Mapping[str, Any] | None = None
    health: Mapping[str, Any] | None = None
    error: str | None = None


def check_config(paths: Paths, environ: Mapping[str, str]) -> tuple[EngineConfig, list[Finding]]:
    """The configuration, and the defaults when it cannot be used."""
    file = paths.config_file
    try:
        config, warnings = load(file, environ)
    except ConfigError as error:
        todo = "correct it; `klaw config check` looks at it again"
        return EngineConfig(), [problem("configuration", f"{file}: {each}", todo) for each in error.problems]
    if warnings:
        return config, [warning("configuration", f"{file}: {each}", "see docs/configuration.md") for each in warnings]
    text = f"{file} is valid" if file.exists() else f"there is no {file}: the defaults apply"
    if missing := list(unresolved_secrets(config)):
        # Not a problem: keys may be in the service's environment alone. A running server says what it lacks.
        text += f"; not to be had here: {listed([str(each) for each in missing])}"
    return config, [ok("configuration", text)]


def check_tokens(paths: Paths) -> Finding:
    file = tokens_file(paths.config_dir)
    try:
        access = load_access(file)
    except ConfigError as error:
        todo = 'restore the file, or write {"tokens": []} into it and add the tokens again'
        return problem("tokens", str(error), todo)
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
        parts = (paths.config_dir, data, paths.state_dir, paths.models_dir, paths.runtime_dir, paths.workspace)
        above = next((each for each in parts if foreign[0].is_relative_to(each)), foreign[0])
        todo = belongs_to(above, foreign[0].lstat().st_uid)
        return problem("folders", f"of another user, and not usable: {listed([str(each) for each in foreign])}", todo)
    if not data.is_dir():
        todo = "give the right --home (or KLAW_HOME), or start it with `klaw serve`"
        return problem("folders", f"there is no data folder {data}: Klaw has never run here", todo)
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


def _is_open(path: Path) -> bool:
    return bool(stat.S_IMODE(path.stat().st_mode) & 0o077)


def check_clock(now: float, newest: str | None) -> Finding:
    """Whether the clock can be right; ``newest`` is the ISO time of the newest message."""
    moment = dt.datetime.fromtimestamp(now, dt.UTC)
    shown = f"{moment:%Y-%m-%d %H:%M:%S} UTC"
    todo = "set the clock, and let it be set by the network (timedatectl set-ntp true)"
    if now < EARLIEST:
        return problem("clock", f"it says {shown}, which cannot be", todo)
    with suppress(ValueError):  # a damaged time is told by the checks of the database
        if newest is not None and from_iso(newest) > now + FUTURE_S:
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


def check_server(paths: Paths, server: Server, version: str) -> list[Finding]:
    """Whether a server runs, and what it says is degraded."""
    status, health = server.status, server.health or {}
    if status is None:
        if is_in_use(paths.data_dir):
            text = f"a server uses {paths.data_dir}, and its admin socket does not answer: {server.error}"
            todo = "run this as its user; if it still does not answer, restart the server"
            return [problem("server", text, todo)]
        return [ok("server", f"none runs: {server.error}" if server.error else "none runs")]
    text = f"Klaw {status['version']} runs, pid {status['pid']}, {status['address'] or 'not listening'}"
    found = [ok("server", text)]
    if status["version"] != version:
        found = [warning("server", f"{text}; this command is of {version}", "restart the server")]
    if health.get("state") == "failing":
        text = "its writer does not commit: messages are not stored"
        found.append(problem("server", text, "restart it; see its log"))
    for each in status["degraded"]:
        text = f"a part does not work: {each['code']}: {each['text']}"
        found.append(warning("server", text, "see docs/operations.md, What does not work"))
    for each in status["llm"]["providers"]:
        if each.get("error"):
            text = f"{each['name']}: the last call failed: {each['error']}"
            found.append(warning("LLM provider", text, "correct it; `klaw models test` asks again"))
    return found


def is_in_use(data_dir: Path) -> bool:
    """Whether a process holds the folder. Asks the kernel's list and takes no lock: a server may be starting."""
    try:
        inode = (data_dir / LOCK_FILE).stat().st_ino
        locks = Path("/proc/locks").read_text(encoding="ascii")
    except OSError:
        return False
    fields = (line.split() for line in locks.splitlines())
    return any("FLOCK" in line and any(field.endswith(f":{inode}") for field in line) for line in fields)


# -- files of messages and of knowledge bases -------------------------------------------------------------------------

SECOND_LOOK_S = 1.0
"""A running server keeps a file before its message is stored, and removes it before its message is forgotten."""


@attrs.frozen(kw_only=True)
class _FileKind:
    what: str
    of: str
    named_by: str
    folder: str
    todo: str
    there: Callable[[Path], Mapping[str, int]]
    """Sizes of files below the data folder, by their keys."""
    wanted: Callable[[Path], Mapping[str, tuple[int, str, str]]]
    """By the same keys, as the database says: size, what names the file, and its SHA-256 if the key does not say it."""
    is_whole: Callable[[Path, str, str], bool]


FILE_KINDS = (
    _FileKind(
        what="files",
        of="messages",
        named_by="message",
        folder=attachments.FOLDER,
        todo="put it back from a backup of attachments/ and users/, or send the same file to the chat again; without it"
        " `klaw forget CHAT#NUMBER` removes the message",
        there=attachments.sent,
        wanted=lambda file: {path: (*found, "") for path, found in read_offline(file, named).items()},
        is_whole=lambda data_dir, path, _: attachments.is_whole(data_dir, path),
    ),
    _FileKind(
        what="knowledge",
        of="knowledge bases",
        named_by="source",
        folder=originals.FOLDER,
        todo="put it back from a backup of knowledge/; without it `klaw kb remove SOURCE` removes the source, and"
        " `klaw kb add BASE FILE` adds the file again",
        there=originals.every,
        wanted=lambda file: {
            key: (size, key, sha256) for key, (size, sha256) in read_offline(file, sources.kept_files).items()
        },
        is_whole=lambda data_dir, source, sha256: originals.is_whole(data_dir, SourceId(source), sha256),
    ),
)


def check_files(paths: Paths, *, whole: bool, running: bool, settled: bool) -> Iterator[Finding]:
    """Compare all files of messages and of knowledge bases with what names them. Raises StorageError. ``whole`` reads
    every file; else its size must do. A ``running`` server may change them meanwhile. Unless the database is
    ``settled``, it lacks messages, and nothing is said of files that none names."""
    for kind in FILE_KINDS:
        try:
            found = _compared(kind, paths, whole=whole, settled=settled)
            if running and not all(each.level is Level.OK for each in found):
                time.sleep(SECOND_LOOK_S)
                found = _compared(kind, paths, whole=whole, settled=settled)
        except OSError as error:
            text = f"they cannot be read: {error.strerror or 'something there is no plain file'}"
            found = [problem(kind.what, text, f"correct owner and mode of {paths.data_dir / kind.folder}")]
        yield from found


def _compared(kind: _FileKind, paths: Paths, *, whole: bool, settled: bool) -> list[Finding]:
    there, wanted = kind.there(paths.data_dir), kind.wanted(paths.database)
    missing, damaged = [], []
    for key, (size, name, sha256) in wanted.items():
        if key not in there:
            missing.append(name)
        elif there[key] != size or (whole and not kind.is_whole(paths.data_dir, key, sha256)):
            damaged.append(name)
    findings = []
    if missing:
        text = f"{plural(len(missing), 'file')} of {kind.of} not there: {listed(missing)}"
        findings.append(problem(kind.what, text, kind.todo))
    if damaged:
        text = f"{plural(len(damaged), 'file')} of {kind.of} not as they were sent: {listed(damaged)}"
        findings.append(problem(kind.what, text, f"delete what is there, then {kind.todo}"))
    if settled and (nobodys := sorted(there.keys() - wanted)):
        text = f"{plural(len(nobodys), 'file')} named by no {kind.named_by}: {listed(nobodys)}"
        findings.append(warning(kind.what, text, f"they only take space: delete them in {paths.data_dir}"))
    how = "read" if whole else "their sizes; --full reads them"
    return findings or [ok(kind.what, f"{plural(len(wanted), 'file')} of {kind.of} in order ({how})")]


# -- models -----------------------------------------------------------------------------------------------------------


def check_embedding(paths: Paths, config: EngineConfig, stored: str | None, *, whole: bool) -> Finding:
    """The embedding model; ``stored`` is the id of the one whose vectors there are. ``whole``: compare the
    checksums."""
    if not config.embedding.enabled:
        return ok("embedding_model", "embedding.enabled is false: recall is full-text only")
    if (named := config.endpoints.get("embeddings")) is not None:
        return _check_remote("/".join(named), stored)
    folder = config.embedding.path or paths.models_dir / config.embedding.model
    try:
        model_id = vectors_id(describe(folder).model_id)
        damage = _damage(folder) if whole else None
    except ModelError as error:
        return problem("embedding_model", f"{error}; recall is full-text only", "klaw models pull")
    if damage is not None:
        return problem("embedding_model", f"{folder}: {damage}", "klaw models pull --verify")
    if stored is not None and stored != model_id:
        todo = "nothing: the next start with this model embeds all messages again; until then recall is full-text only"
        return warning("embedding_model", f"the vectors are of {stored}, the model here is {model_id}", todo)
    return ok("embedding_model", model_id)


def _check_remote(name: str, stored: str | None) -> Finding:
    """A provider's embedding model, as far as that can be seen without asking it."""
    if stored is not None and not stored.startswith(f"{name}@"):
        todo = "nothing: a running server embeds all messages again; until then recall is full-text only"
        return warning("embedding_model", f"the vectors are of {stored}, embedding.provider's model is {name}", todo)
    return ok("embedding_model", f"{name}, to which all messages are sent; `klaw models test {name}` asks it")


_SENT = {
    "rerank": ("reranker", "what recall found"),
    "audio/transcriptions": ("listening", "what people say"),
    "audio/speech": ("speaking", "what is read aloud"),
}


def check_endpoints(config: EngineConfig) -> list[Finding]:
    """The providers' models that do not chat, as far as that can be seen without asking them."""
    named = {path: "/".join(names) for path, names in config.endpoints.items() if path in _SENT}
    told = "{0}, to which {1} is sent; `klaw models test {0}` asks it"
    return [ok(_SENT[path][0], told.format(name, _SENT[path][1])) for path, name in named.items()]


def check_local_llm(paths: Paths, config: EngineConfig, *, whole: bool) -> Finding | None:
    """Returns None when no route leads to it."""
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
    return ok("local_model", local.model)


def _damage(folder: Path, *, verify: bool = True) -> str | None:
    if not (folder / MANIFEST_FILE).is_file():
        return None  # the Hugging Face layout has no checksums to compare with
    return find_damage(folder, load_manifest(folder), verify=verify)
