-- Browsers that are notified of what their user has not seen.
CREATE TABLE push_subscriptions (
    rowid      INTEGER PRIMARY KEY,
    entry      INTEGER NOT NULL,
    user_id    TEXT NOT NULL,
    id         TEXT NOT NULL UNIQUE,
    endpoint   TEXT NOT NULL,
    p256dh     TEXT NOT NULL,
    auth       TEXT NOT NULL,
    login      TEXT,
    words      INTEGER NOT NULL,
    created_at TEXT NOT NULL
) STRICT;
