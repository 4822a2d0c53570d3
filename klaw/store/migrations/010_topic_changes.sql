-- What changed topics that were there already, with their states before it: so it can be told, and taken back.

-- before: JSON, the states of the topics that it changed or ended. after: JSON, ids of the topics that it left.
-- The row ids bound those of the messages in "before". changed: the memory journal's last entry that changed the row.
CREATE TABLE topic_changes (
    entry       INTEGER PRIMARY KEY,
    user_id     TEXT NOT NULL,
    chat_id     TEXT NOT NULL,
    at          TEXT NOT NULL,
    op          TEXT NOT NULL CHECK (op IN ('merge', 'split', 'rebuild', 'undo')),
    by          TEXT NOT NULL CHECK (by IN ('archivist', 'person')),
    first_rowid INTEGER NOT NULL,
    last_rowid  INTEGER NOT NULL,
    before      TEXT NOT NULL,
    after       TEXT NOT NULL,
    undoes      INTEGER,
    undone_by   INTEGER,
    changed     INTEGER NOT NULL
) STRICT;
CREATE INDEX topic_changes_by_user ON topic_changes (user_id, entry);
