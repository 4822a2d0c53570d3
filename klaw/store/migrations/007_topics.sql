-- Topics. Which messages are a topic's is messages.topic_id; the rest of its row follows from them and from the journal.

-- entry: the memory journal's last entry that changed it.
CREATE TABLE topics (
    id           INTEGER PRIMARY KEY AUTOINCREMENT, -- never used twice
    entry        INTEGER NOT NULL,
    user_id      TEXT NOT NULL,
    chat_id      TEXT NOT NULL,
    summary      TEXT NOT NULL,
    general      INTEGER NOT NULL CHECK (general IN (0, 1)),
    messages     INTEGER NOT NULL,
    chars        INTEGER NOT NULL,
    first_rowid  INTEGER NOT NULL,
    last_rowid   INTEGER NOT NULL,
    first_at     TEXT NOT NULL,
    last_at      TEXT NOT NULL,
    created_at   TEXT NOT NULL,
    updated_at   TEXT NOT NULL,
    consolidated INTEGER NOT NULL CHECK (consolidated IN (0, 1)),
    facts        INTEGER NOT NULL CHECK (facts IN (0, 1))
) STRICT;
CREATE INDEX topics_by_user ON topics (user_id, last_rowid);
CREATE INDEX topics_unfinished ON topics (id) WHERE consolidated = 0 OR facts = 0;

-- Topics that are gone: merged into another one, or (NULL) removed.
CREATE TABLE topic_ends (
    id      INTEGER PRIMARY KEY,
    entry   INTEGER NOT NULL,
    user_id TEXT NOT NULL,
    into_id INTEGER
) STRICT;

CREATE VIEW topics_search AS
    SELECT id AS rowid, summary AS content, 'u' || lower(hex(user_id)) AS scope FROM topics;
CREATE VIRTUAL TABLE topics_fts USING fts5 (
    content, scope,
    content = 'topics_search', content_rowid = 'rowid', tokenize = 'klaw'
);

-- A plain table, like vec_facts: a user has thousands of topics, and a search reads all of them.
CREATE TABLE vec_topics (
    rowid     INTEGER PRIMARY KEY REFERENCES topics (id) ON DELETE CASCADE,
    user_id   TEXT NOT NULL,
    model     TEXT NOT NULL,
    embedding BLOB NOT NULL
) STRICT;
CREATE INDEX vec_topics_by_user ON vec_topics (user_id);

CREATE INDEX messages_by_topic ON messages (topic_id) WHERE topic_id IS NOT NULL;
-- What waits for a topic, with all that chunking asks for.
CREATE INDEX messages_unarchived ON messages (user_id, rowid, chat_id, role, type, created_at)
    WHERE topic_id IS NULL AND role IN ('user', 'assistant', 'tool')
        AND type IN ('text', 'scheduled', 'tool_call', 'tool_result');
-- Ids that an earlier version may have set belong to no topic.
UPDATE messages SET topic_id = NULL WHERE topic_id IS NOT NULL;
