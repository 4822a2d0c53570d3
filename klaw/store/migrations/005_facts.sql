-- Facts, core memory, and the pieces of the workspace's memory files.

-- One row per fact that was not removed. rowid is the number of the memory journal's entry that made it, entry that of
-- the last one that changed it: so a rebuild gives the same rows.
CREATE TABLE facts (
    rowid         INTEGER PRIMARY KEY,
    entry         INTEGER NOT NULL,
    id            TEXT NOT NULL,
    user_id       TEXT NOT NULL,
    text          TEXT NOT NULL,
    normal        TEXT NOT NULL, -- klaw.domain.fact.normal_form
    category      TEXT NOT NULL,
    importance    INTEGER NOT NULL CHECK (importance BETWEEN 0 AND 100),
    source        TEXT NOT NULL CHECK (source IN ('tool', 'user', 'archivist', 'chat')),
    origin        TEXT NOT NULL CHECK (origin IN ('user', 'assistant', 'tool')),
    chat_id       TEXT,
    message_id    TEXT,
    turn_id       TEXT,
    topic         TEXT,
    created_at    TEXT NOT NULL,
    updated_at    TEXT NOT NULL,
    superseded_by TEXT,
    UNIQUE (user_id, id)
) STRICT;
CREATE INDEX facts_active ON facts (user_id, normal) WHERE superseded_by IS NULL;

-- Every change of a fact, as the memory journal has it. value is the whole fact; NULL: it was removed.
CREATE TABLE fact_changes (
    entry   INTEGER PRIMARY KEY,
    user_id TEXT NOT NULL,
    fact_id TEXT NOT NULL,
    at      TEXT NOT NULL,
    value   TEXT CHECK (value IS NULL OR json_valid(value))
) STRICT;
CREATE INDEX fact_changes_by_fact ON fact_changes (user_id, fact_id, entry);

CREATE VIEW facts_search AS
    SELECT rowid, text AS content, 'u' || lower(hex(user_id)) AS scope FROM facts WHERE superseded_by IS NULL;
CREATE VIRTUAL TABLE facts_fts USING fts5 (
    content, scope,
    content = 'facts_search', content_rowid = 'rowid', tokenize = 'klaw'
);

-- A plain table: a user's facts are few, and a search reads all of them. model: what made the vector; those of another
-- model count as missing.
CREATE TABLE vec_facts (
    rowid     INTEGER PRIMARY KEY REFERENCES facts (rowid) ON DELETE CASCADE,
    model     TEXT NOT NULL,
    embedding BLOB NOT NULL
) STRICT;

-- The last core memory that Klaw wrote. replaces: SHA-256 of the file in whose place it comes ('' for none); pending: the
-- file may still be that one.
CREATE TABLE core_memory (
    user_id    TEXT PRIMARY KEY,
    document   TEXT NOT NULL CHECK (json_valid(document)),
    replaces   TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    pending    INTEGER NOT NULL DEFAULT 1
) STRICT, WITHOUT ROWID;

-- MEMORY.md and memory/*.md, which are their own source: in no log, and made anew by looking at the files.
CREATE TABLE memory_files (
    user_id TEXT NOT NULL,
    path    TEXT NOT NULL,
    stamp   TEXT NOT NULL, -- inode, change time and size when it was read
    PRIMARY KEY (user_id, path)
) STRICT, WITHOUT ROWID;
CREATE TABLE chunks (
    rowid   INTEGER PRIMARY KEY AUTOINCREMENT, -- never used twice: a vector that comes late finds no other chunk
    user_id TEXT NOT NULL,
    path    TEXT NOT NULL,
    line    INTEGER NOT NULL, -- where it begins, from 1
    heading TEXT NOT NULL,
    text    TEXT NOT NULL
) STRICT;
CREATE INDEX chunks_by_file ON chunks (user_id, path, line);
CREATE VIEW chunks_search AS
    SELECT rowid, heading || char(10) || text AS content, 'u' || lower(hex(user_id)) AS scope FROM chunks;
CREATE VIRTUAL TABLE chunks_fts USING fts5 (
    content, scope,
    content = 'chunks_search', content_rowid = 'rowid', tokenize = 'klaw'
);
CREATE TABLE vec_chunks (
    rowid     INTEGER PRIMARY KEY REFERENCES chunks (rowid) ON DELETE CASCADE,
    model     TEXT NOT NULL,
    embedding BLOB NOT NULL
) STRICT;
