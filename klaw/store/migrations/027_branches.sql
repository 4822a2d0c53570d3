-- Variants: the branches of chats (klaw/domain/branch.py), and what of them is not shown now. A replaced message keeps
-- its row, number and id in `messages`, as a command's row without content, like a forgotten one: nothing that reads
-- conversations looks at those. What it says stands in `replaced_messages` until its branch is active again.

-- entry: of the memory journal, when the branch last became active.
CREATE TABLE branches (
    chat_id    TEXT NOT NULL,
    branch     INTEGER NOT NULL,
    user_id    TEXT NOT NULL,
    parent     INTEGER,
    before_seq INTEGER NOT NULL,
    again      INTEGER NOT NULL CHECK (again IN (0, 1)),
    first_seq  INTEGER NOT NULL,
    entry      INTEGER NOT NULL,
    PRIMARY KEY (chat_id, branch)
) STRICT, WITHOUT ROWID;

CREATE TABLE replaced_messages (
    rowid    INTEGER PRIMARY KEY, -- of the message
    chat_id  TEXT NOT NULL,
    seq      INTEGER NOT NULL,
    branch   INTEGER NOT NULL,
    role     TEXT NOT NULL,
    type     TEXT NOT NULL,
    content  TEXT NOT NULL,
    metadata TEXT NOT NULL CHECK (json_valid(metadata)),
    tokens   INTEGER NOT NULL
) STRICT;
CREATE INDEX replaced_messages_by_branch ON replaced_messages (chat_id, branch, seq);

CREATE TABLE replaced_turns (
    turn_id  TEXT PRIMARY KEY,
    chat_id  TEXT NOT NULL,
    branch   INTEGER NOT NULL,
    last_seq INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX replaced_turns_by_chat ON replaced_turns (chat_id, branch);

-- Facts and people that were made of replaced messages only. They come back with the message `seq`.
CREATE TABLE replaced_things (
    user_id TEXT NOT NULL,
    what    TEXT NOT NULL,
    thing   TEXT NOT NULL,
    chat_id TEXT NOT NULL,
    seq     INTEGER NOT NULL,
    PRIMARY KEY (user_id, what, thing)
) STRICT, WITHOUT ROWID;

-- All messages as they were said, for forgetting and for those who ask for all variants. `branch`: of a replaced one.
CREATE VIEW messages_whole AS
    SELECT m.rowid AS rowid, m.id, m.user_id, m.channel, m.chat_id, m.seq, coalesce(r.role, m.role) AS role,
        coalesce(r.type, m.type) AS type, coalesce(r.content, m.content) AS content,
        coalesce(r.metadata, m.metadata) AS metadata, coalesce(r.tokens, m.tokens) AS tokens, m.created_at, m.segment,
        r.branch AS branch
    FROM messages m LEFT JOIN replaced_messages r ON r.rowid = m.rowid;

-- The memory journal's entry by which its active branch last changed; 0: it has no variants.
ALTER TABLE sessions ADD COLUMN branched INTEGER NOT NULL DEFAULT 0;
