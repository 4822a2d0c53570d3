-- Summaries of the older parts of segments, and notes on their tool calls.

-- One row per summary. rowid is the number of the memory journal's entry that made it, so a rebuild gives the same rows.
CREATE TABLE summaries (
    rowid             INTEGER PRIMARY KEY,
    user_id           TEXT NOT NULL,
    chat_id           TEXT NOT NULL,
    number            INTEGER NOT NULL, -- 1, 2, 3 … in its chat
    segment           INTEGER NOT NULL,
    first_seq         INTEGER NOT NULL,
    last_seq          INTEGER NOT NULL,
    text              TEXT NOT NULL,
    tokens            INTEGER NOT NULL,
    model             TEXT NOT NULL,
    created_at        TEXT NOT NULL,
    prompt_tokens     INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    state             TEXT NOT NULL CHECK (state IN ('live', 'superseded', 'evicted')),
    changed           INTEGER NOT NULL, -- entry of the journal that set its state
    UNIQUE (chat_id, number),
    CHECK (first_seq <= last_seq)
) STRICT;
CREATE INDEX summaries_by_range ON summaries (chat_id, segment, last_seq);
CREATE INDEX summaries_by_user ON summaries (user_id, created_at);
-- What a summary cost stays spent, also when it is removed.
CREATE TRIGGER summaries_charged AFTER INSERT ON summaries WHEN NEW.prompt_tokens + NEW.completion_tokens > 0 BEGIN
    INSERT INTO charged VALUES (
        NEW.created_at, 'summary', NEW.chat_id || '#' || NEW.number, NEW.model, NEW.user_id, NEW.chat_id, NULL,
        json_array(json_object('prompt_tokens', NEW.prompt_tokens, 'completion_tokens', NEW.completion_tokens))
    );
END;

-- What single tool calls brought (summaries.toolCalls), found by full text and vectors like facts.
CREATE TABLE tool_notes (
    rowid   INTEGER PRIMARY KEY, -- the entry of its summary times 1000, and its place
    user_id TEXT NOT NULL,
    chat_id TEXT NOT NULL,
    number  INTEGER NOT NULL,    -- of its summary
    seq     INTEGER NOT NULL,    -- of the message that holds the call
    call_id TEXT NOT NULL,
    tool    TEXT NOT NULL,
    text    TEXT NOT NULL,
    vector_model TEXT         -- what made its vector; those of another model than the one in use count as missing
) STRICT;
CREATE INDEX tool_notes_by_vector ON tool_notes (vector_model);
CREATE INDEX tool_notes_by_message ON tool_notes (chat_id, seq);
CREATE VIEW tool_notes_search AS
    SELECT rowid, tool || ': ' || text AS content, 'u' || lower(hex(user_id)) AS scope FROM tool_notes;
CREATE VIRTUAL TABLE tool_notes_fts USING fts5 (
    content, scope,
    content = 'tool_notes_search', content_rowid = 'rowid', tokenize = 'klaw'
);
CREATE TABLE vec_tool_notes (
    rowid     INTEGER PRIMARY KEY REFERENCES tool_notes (rowid) ON DELETE CASCADE,
    embedding BLOB NOT NULL
) STRICT;

-- Chats whose last attempt failed, so that a restart does not try again at once. In no log: a rebuild forgets it.
CREATE TABLE summary_failures (
    chat_id  TEXT PRIMARY KEY,
    failures INTEGER NOT NULL CHECK (failures >= 1),
    retry_at TEXT NOT NULL,
    code     TEXT NOT NULL
) STRICT, WITHOUT ROWID;
