-- Tasks, and the runs of tasks and subagents.

-- One row per task. `fires` says which of the following columns hold its trigger.
CREATE TABLE tasks (
    user_id      TEXT NOT NULL,
    name         TEXT NOT NULL,
    fires        TEXT NOT NULL CHECK (fires IN ('cron', 'every', 'at')),
    expression   TEXT,
    zone         TEXT,
    every_s      INTEGER CHECK (every_s > 0),
    at           TEXT,
    message      TEXT NOT NULL,
    model        TEXT,
    inject_into  TEXT,
    enabled      INTEGER NOT NULL CHECK (enabled IN (0, 1)),
    timeout_s    INTEGER,
    max_tokens   INTEGER,
    daily_tokens INTEGER,
    created_at   TEXT NOT NULL,
    updated_at   TEXT NOT NULL,
    anchor_at    TEXT NOT NULL,
    PRIMARY KEY (user_id, name),
    CHECK ((fires = 'cron') = (expression IS NOT NULL) AND (fires = 'cron') = (zone IS NOT NULL)),
    CHECK ((fires = 'every') = (every_s IS NOT NULL)),
    CHECK ((fires = 'at') = (at IS NOT NULL))
) STRICT, WITHOUT ROWID;

-- One row per run, with its last state. Every state is a new row with a higher `change` in place of the one before; so
-- a reindex beside a server knows which rows it has compared, and of two lines of the log which one is the newer.
CREATE TABLE runs (
    change            INTEGER PRIMARY KEY AUTOINCREMENT,
    id                TEXT NOT NULL UNIQUE,
    user_id           TEXT NOT NULL,
    task              TEXT NOT NULL,
    kind              TEXT NOT NULL CHECK (kind IN ('scheduled', 'manual', 'spawned', 'heartbeat')),
    due               TEXT NOT NULL,
    attempt           INTEGER NOT NULL CHECK (attempt >= 1),
    status            TEXT NOT NULL CHECK (status IN
        ('running', 'done', 'silent', 'failed', 'timed_out', 'cancelled', 'interrupted', 'refused')),
    message           TEXT NOT NULL,
    model             TEXT NOT NULL,
    inject_into       TEXT,
    started_at        TEXT NOT NULL,
    ended_at          TEXT,
    prompt_tokens     INTEGER NOT NULL CHECK (prompt_tokens >= 0),
    completion_tokens INTEGER NOT NULL CHECK (completion_tokens >= 0),
    error             TEXT,
    note              TEXT,
    result            TEXT NOT NULL,
    delivered         INTEGER NOT NULL CHECK (delivered >= 0),
    parent            TEXT,
    notify            TEXT,
    depth             INTEGER NOT NULL CHECK (depth >= 0),
    details           TEXT NOT NULL CHECK (json_valid(details)),
    UNIQUE (user_id, task, kind, due, attempt) -- no fire time runs twice
) STRICT;
CREATE INDEX runs_by_task ON runs (user_id, task, started_at, id);
CREATE INDEX runs_by_user ON runs (user_id, started_at, id);
CREATE INDEX runs_running ON runs (started_at) WHERE status = 'running';
