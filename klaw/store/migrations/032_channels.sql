-- Conversations of messengers in which users talk with Klaw, and how far each account of a messenger was read.
CREATE TABLE channel_links (
    rowid        INTEGER PRIMARY KEY,
    entry        INTEGER NOT NULL,
    user_id      TEXT NOT NULL,
    id           TEXT NOT NULL UNIQUE,
    account      TEXT NOT NULL,
    conversation TEXT NOT NULL,
    sender       TEXT NOT NULL,
    title        TEXT NOT NULL,
    language     TEXT NOT NULL,
    chat         TEXT NOT NULL,
    delivered    INTEGER NOT NULL,
    parts        INTEGER NOT NULL,
    draft        TEXT NOT NULL,
    created_at   TEXT NOT NULL
) STRICT;

CREATE TABLE channel_positions (
    rowid    INTEGER PRIMARY KEY,
    entry    INTEGER NOT NULL,
    user_id  TEXT NOT NULL,
    account  TEXT NOT NULL UNIQUE,
    position TEXT NOT NULL
) STRICT;
