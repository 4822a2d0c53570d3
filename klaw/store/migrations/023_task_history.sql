-- The history of tasks, like that of facts and people. A row's number is that of the entry that made it; those of before
-- have negative ones, and get `entry` from the memory journal, by which the next start fills the history.

CREATE TABLE new_tasks (
    rowid        INTEGER PRIMARY KEY,
    entry        INTEGER NOT NULL,
    user_id      TEXT NOT NULL,
    name         TEXT NOT NULL,
    trigger      TEXT NOT NULL,
    fires        TEXT AS (CASE WHEN trigger ->> '$.cron' IS NOT NULL THEN 'cron'
                               WHEN trigger ->> '$.every_s' IS NOT NULL THEN 'every' ELSE 'at' END),
    expression   TEXT AS (trigger ->> '$.cron'),
    zone         TEXT AS (trigger ->> '$.zone'),
    every_s      INTEGER AS (trigger ->> '$.every_s'),
    at           TEXT AS (trigger ->> '$.at'),
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
    UNIQUE (user_id, name)
) STRICT;

INSERT INTO new_tasks (rowid, entry, user_id, name, trigger, message, model, inject_into, enabled, timeout_s, max_tokens,
    daily_tokens, created_at, updated_at, anchor_at)
SELECT -row_number() OVER (), 0, user_id, name, trigger, message, model, inject_into, enabled, timeout_s, max_tokens,
    daily_tokens, created_at, updated_at, anchor_at
FROM tasks;

DROP TABLE tasks;
ALTER TABLE new_tasks RENAME TO tasks;

CREATE TABLE task_changes (
    entry   INTEGER PRIMARY KEY,
    user_id TEXT NOT NULL,
    task_id TEXT NOT NULL, -- its name
    at      TEXT NOT NULL,
    value   TEXT CHECK (value IS NULL OR json_valid(value))
) STRICT;
CREATE INDEX task_changes_by_task ON task_changes (user_id, task_id, entry);

INSERT INTO meta (key, value)
SELECT 'no_task_history', '' WHERE EXISTS (SELECT 1 FROM meta WHERE key = 'memory_entry');
