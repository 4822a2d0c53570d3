-- Tasks whose message is delivered as it is; and what users chose for themselves: their time zone.

ALTER TABLE tasks ADD COLUMN reminder INTEGER;

CREATE TABLE user_settings (
    rowid      INTEGER PRIMARY KEY,
    entry      INTEGER NOT NULL,
    user_id    TEXT NOT NULL UNIQUE,
    zone       TEXT NOT NULL,
    updated_at TEXT NOT NULL
) STRICT;
