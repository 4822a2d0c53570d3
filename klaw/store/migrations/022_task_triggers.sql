-- A task's trigger is one JSON object, as in the journal: a one-shot may have the zone in which it was given. The columns
-- that it had are made from it, so that the content of the table compares equal.

CREATE TABLE new_tasks (
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
    PRIMARY KEY (user_id, name)
) STRICT, WITHOUT ROWID;

INSERT INTO new_tasks (user_id, name, trigger, message, model, inject_into, enabled, timeout_s, max_tokens, daily_tokens,
    created_at, updated_at, anchor_at)
SELECT user_id, name,
    CASE fires
        WHEN 'cron' THEN json_object('cron', expression, 'zone', zone)
        WHEN 'every' THEN json_object('every_s', every_s)
        ELSE json_object('at', at)
    END,
    message, model, inject_into, enabled, timeout_s, max_tokens, daily_tokens, created_at, updated_at, anchor_at
FROM tasks;

DROP TABLE tasks;
ALTER TABLE new_tasks RENAME TO tasks;
