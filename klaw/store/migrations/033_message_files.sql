-- Files of messages are read as documents are: those of a user are the documents of one source, in a base of its own.
CREATE TABLE kb_sources_new (
    id         TEXT PRIMARY KEY,
    entry      INTEGER NOT NULL,
    user_id    TEXT NOT NULL,
    base_id    TEXT NOT NULL,
    kind       TEXT NOT NULL CHECK (kind IN ('file', 'folder', 'web', 'rdf', 'sparql', 'messages')),
    name       TEXT NOT NULL,
    place      TEXT NOT NULL,
    sha256     TEXT NOT NULL,
    size       INTEGER NOT NULL,
    added_by   TEXT NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO kb_sources_new SELECT * FROM kb_sources;
DROP TABLE kb_sources;
ALTER TABLE kb_sources_new RENAME TO kb_sources;
CREATE INDEX kb_sources_by_base ON kb_sources (base_id);

-- No list of bases shows one of messages' files.
ALTER TABLE kb_bases ADD COLUMN of_messages INTEGER CHECK (of_messages = 1);
ALTER TABLE kb_documents ADD COLUMN words INTEGER NOT NULL DEFAULT 0;

CREATE INDEX messages_with_files ON messages (chat_id, seq) WHERE instr(metadata, '"files":');
