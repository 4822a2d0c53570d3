-- Messages, their full-text index, sessions, turns and meta. Vectors: see klaw/store/search/vectors.py, because the
-- dimension of the vec0 table depends on the embedding model.

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- One row per chat. chat_key is the short integer that full text and vectors use as their scope.
CREATE TABLE sessions (
    chat_key      INTEGER PRIMARY KEY AUTOINCREMENT,
    chat_id       TEXT NOT NULL UNIQUE,
    user_id       TEXT NOT NULL,
    name          TEXT NOT NULL,
    model         TEXT,
    last_seq      INTEGER NOT NULL DEFAULT 0,
    segment       INTEGER NOT NULL DEFAULT 0,
    segment_start INTEGER NOT NULL DEFAULT 1, -- seq of the segment's first message
    created_at    TEXT NOT NULL,
    updated_at    TEXT NOT NULL
) STRICT;
CREATE INDEX sessions_by_user ON sessions (user_id, updated_at);

CREATE TABLE messages (
    rowid      INTEGER PRIMARY KEY AUTOINCREMENT, -- explicit, so that VACUUM keeps it; never used twice
    id         TEXT NOT NULL,
    user_id    TEXT NOT NULL,
    channel    TEXT NOT NULL,
    chat_id    TEXT NOT NULL REFERENCES sessions (chat_id),
    seq        INTEGER NOT NULL,
    role       TEXT NOT NULL CHECK (role IN ('user', 'assistant', 'tool', 'system')),
    type       TEXT NOT NULL CHECK (type IN ('text', 'tool_call', 'tool_result', 'session_break', 'command', 'scheduled')),
    content    TEXT NOT NULL,
    metadata   TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(metadata)),
    tokens     INTEGER NOT NULL,
    created_at TEXT NOT NULL,
    segment    INTEGER NOT NULL,
    topic_id   INTEGER,
    embedded   INTEGER NOT NULL DEFAULT 0,
    UNIQUE (user_id, id),
    UNIQUE (chat_id, seq)
) STRICT;
-- What the embedder's sweep looks for: searchable rows without a vector, by length.
CREATE INDEX messages_unembedded ON messages (tokens)
    WHERE embedded = 0 AND role IN ('user', 'assistant') AND type IN ('text', 'scheduled');

-- What full text indexes. The scope column holds one word for the chat and one for the user, so that a search inside
-- one chat, or over one user's chats, reads that part of the index only.
CREATE VIEW messages_search AS
    SELECT m.rowid AS rowid, m.content AS content, 'c' || s.chat_key || ' u' || lower(hex(m.user_id)) AS scope
    FROM messages m JOIN sessions s USING (chat_id)
    WHERE m.role IN ('user', 'assistant') AND m.type IN ('text', 'scheduled');
CREATE VIRTUAL TABLE messages_fts USING fts5 (
    content, scope,
    content = 'messages_search', content_rowid = 'rowid', tokenize = 'klaw'
);

CREATE TABLE turns (
    turn_id    TEXT PRIMARY KEY,
    chat_id    TEXT NOT NULL REFERENCES sessions (chat_id),
    user_id    TEXT NOT NULL,
    segment    INTEGER NOT NULL,
    status     TEXT NOT NULL CHECK (status IN ('done', 'stopped', 'failed')),
    model      TEXT NOT NULL,
    first_seq  INTEGER NOT NULL,
    last_seq   INTEGER NOT NULL,
    started_at TEXT NOT NULL,
    ended_at   TEXT NOT NULL,
    error      TEXT,
    receipt    TEXT NOT NULL CHECK (json_valid(receipt)),
    usage      TEXT NOT NULL CHECK (json_valid(usage)),
    timings    TEXT NOT NULL CHECK (json_valid(timings))
) STRICT;
CREATE INDEX turns_by_chat ON turns (chat_id, last_seq);
