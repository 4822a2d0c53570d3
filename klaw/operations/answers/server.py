"""What an operator asks of the server."""

from typing import Any, NotRequired, TypedDict

from klaw.llm.trial import ModelCheck
from klaw.store.backup_mark import BackupMark  # noqa: F401  named here
from klaw.store.rebuild.actor import ReindexStatus  # noqa: F401  likewise


class DegradedPart(TypedDict):
    code: str
    text: str
    since: str


class HealthAnswer(TypedDict):
    state: str
    writer_ping_ms: float | None
    degraded: list[DegradedPart]
    failed_actors: list[str]


class LogLevel(TypedDict):
    level: str


class McpAnswer(TypedDict):
    servers: list[dict[str, Any]]
    config_changed: bool


class StatusAnswer(TypedDict):
    version: str
    pid: int
    started_at: str
    uptime_s: float
    rss_bytes: int
    address: str | None
    connections: int
    http_connections: int
    schema: int
    counts: dict[str, int]
    llm: dict[str, Any]
    embedder: dict[str, Any]
    mcp: list[dict[str, Any]]
    coverage: dict[str, Any]
    tasks: dict[str, Any]
    summaries: dict[str, Any]
    topics: Any
    metrics: dict[str, Any]
    threads: list[Any]
    degraded: list[DegradedPart]
    disk: dict[str, int]
    log_level: str


class Actors(TypedDict):
    now: float
    tree: dict[str, Any]


class TrioTasks(TypedDict):
    task: dict[str, Any] | None
    shown: int
    left_out: int


class Token(TypedDict):
    id: str
    user: str
    created_at: str
    operator: NotRequired[bool]
    login_of: NotRequired[str]
    expires_at: NotRequired[str]


class Tokens(TypedDict):
    allow_local: bool
    tokens: list[Token]


class RevokedTokens(TypedDict):
    revoked: list[Token]


class Models(TypedDict):
    models: list[str]
    default: str


class CheckUp(TypedDict):
    ok: bool
    problems: int
    warnings: int
    findings: list[dict[str, Any]]
    chats: dict[str, Any]


class TestedModel(TypedDict):
    model: str
    checks: list[ModelCheck]
