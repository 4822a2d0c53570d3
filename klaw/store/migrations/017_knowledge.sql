-- Knowledge bases. Bases and sources are in the memory journal; documents and passages are made of the files.

-- rowid is the number of the memory journal's entry that made it, entry that of the last one that changed it.
CREATE TABLE kb_bases (
    rowid       INTEGER PRIMARY KEY,
    entry       INTEGER NOT NULL,
    id          TEXT NOT NULL UNIQUE,
    user_id     TEXT NOT NULL,
    name        TEXT NOT NULL,
    description TEXT NOT NULL,
    language    TEXT NOT NULL,
    members     TEXT NOT NULL CHECK (json_valid(members)),
    created_at  TEXT NOT NULL,
    updated_at  TEXT NOT NULL
) STRICT;

-- Who may do what, the owner included: what every statement about a base joins.
CREATE TABLE kb_members (
    user_id TEXT NOT NULL,
    base_id TEXT NOT NULL REFERENCES kb_bases (id) ON DELETE CASCADE,
    role    TEXT NOT NULL CHECK (role IN ('owner', 'editor', 'viewer')),
    PRIMARY KEY (user_id, base_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX kb_members_by_base ON kb_members (base_id);

CREATE TABLE kb_sources (
    id         TEXT PRIMARY KEY,
    entry      INTEGER NOT NULL,
    user_id    TEXT NOT NULL,
    base_id    TEXT NOT NULL,
    kind       TEXT NOT NULL CHECK (kind IN ('file', 'folder', 'web', 'rdf', 'sparql')),
    name       TEXT NOT NULL,
    place      TEXT NOT NULL,
    sha256     TEXT NOT NULL,
    size       INTEGER NOT NULL,
    added_by   TEXT NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX kb_sources_by_base ON kb_sources (base_id);

CREATE TABLE kb_documents (
    id        TEXT PRIMARY KEY,
    base_id   TEXT NOT NULL,
    source_id TEXT NOT NULL,
    name      TEXT NOT NULL,
    title     TEXT NOT NULL,
    format    TEXT NOT NULL,
    language  TEXT NOT NULL,
    size      INTEGER NOT NULL,
    stamp     TEXT NOT NULL,
    sha256    TEXT NOT NULL,
    state     TEXT NOT NULL CHECK (state IN ('waiting', 'read', 'failed')),
    pages     INTEGER NOT NULL,
    passages  INTEGER NOT NULL,
    digest    TEXT NOT NULL,
    problems  TEXT NOT NULL CHECK (json_valid(problems)),
    read_at   TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX kb_documents_by_source ON kb_documents (source_id, name);
CREATE INDEX kb_documents_by_base ON kb_documents (base_id, name);
CREATE INDEX kb_documents_waiting ON kb_documents (source_id, name) WHERE state = 'waiting';

CREATE TABLE kb_passages (
    rowid        INTEGER PRIMARY KEY AUTOINCREMENT, -- never used twice
    base_key     INTEGER NOT NULL, -- kb_bases.rowid
    document_id  TEXT NOT NULL,
    ordinal      INTEGER NOT NULL,
    text         TEXT NOT NULL,
    heading      TEXT NOT NULL,
    first_page   INTEGER,
    last_page    INTEGER,
    start        INTEGER NOT NULL,
    end          INTEGER NOT NULL,
    tokens       INTEGER NOT NULL,
    vector_model TEXT, -- what made its vector; those of another model than the one in use count as missing
    UNIQUE (document_id, ordinal)
) STRICT;
CREATE INDEX kb_passages_by_base ON kb_passages (base_key, vector_model);
CREATE INDEX kb_passages_by_vector ON kb_passages (vector_model);

-- What is searched: before a passage's text, what its document is called and the headings that it stands under. A file's
-- name in words: "Report_2015-Q3.pdf" is one word to the tokenizer.
CREATE VIEW kb_passages_search AS
    SELECT rowid, lead || text AS content, 'b' || base_key AS scope, lead, text FROM (
        SELECT p.rowid, p.base_key, p.text,
            replace(replace(replace(d.name, '_', ' '), '-', ' '), '.', ' ') || char(10)
                || CASE d.title WHEN '' THEN '' ELSE substr(d.title, 1, 200) || char(10) END
                || CASE p.heading WHEN '' THEN '' ELSE substr(p.heading, 1, 200) || char(10) END AS lead
        FROM kb_passages AS p JOIN kb_documents AS d ON d.id = p.document_id);
CREATE VIRTUAL TABLE kb_passages_fts USING fts5 (
    content, scope,
    content = 'kb_passages_search', content_rowid = 'rowid', tokenize = 'klaw'
);
-- What is removed leaves no words in the index.
INSERT INTO kb_passages_fts (kb_passages_fts, rank) VALUES ('secure-delete', 1);

-- Eight bits for a component: all vectors of a base are read for one search.
CREATE TABLE vec_kb_passages (
    rowid    INTEGER PRIMARY KEY REFERENCES kb_passages (rowid) ON DELETE CASCADE,
    base_key INTEGER NOT NULL,
    model    TEXT NOT NULL,
    code     BLOB NOT NULL
) STRICT;
CREATE INDEX vec_kb_passages_by_base ON vec_kb_passages (base_key);

-- Which stored answers were given passages of which documents: made of the turns' receipts.
CREATE TABLE kb_used (
    turn_id     TEXT NOT NULL,
    document_id TEXT NOT NULL,
    base_id     TEXT NOT NULL,
    chat_id     TEXT NOT NULL,
    seq         INTEGER NOT NULL, -- of the answer
    cited       INTEGER NOT NULL CHECK (cited IN (0, 1)),
    PRIMARY KEY (turn_id, document_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX kb_used_by_document ON kb_used (document_id);
CREATE INDEX kb_used_by_chat ON kb_used (chat_id, seq);
CREATE INDEX kb_used_by_base ON kb_used (base_id);

-- Bases that a chat is answered from, as a JSON list of their ids.
ALTER TABLE chats ADD COLUMN bases TEXT NOT NULL DEFAULT '[]';
DROP VIEW chat_list;
CREATE VIEW chat_list AS
    SELECT s.chat_id, s.user_id, s.chat_key, s.name, coalesce(c.title, '') AS title, s.last_seq, s.segment, s.created_at,
        s.updated_at,
        coalesce(c.archived, 0) > 0 AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.chat_id = c.chat_id
            AND m.seq > c.archived AND m.role IN ('user', 'assistant') AND m.type IN ('text', 'scheduled')) AS archived,
        coalesce(c.bases, '[]') AS bases
    FROM sessions s LEFT JOIN chats c ON c.chat_id = s.chat_id
    WHERE coalesce(c.deleted, 0) = 0 OR EXISTS (SELECT 1 FROM messages m WHERE m.chat_id = c.chat_id
        AND m.seq > c.deleted AND m.role IN ('user', 'assistant') AND m.type IN ('text', 'scheduled'));
