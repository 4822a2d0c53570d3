-- What users keep of their chats beside the messages. `archived`, `deleted`: the chat's last seq at that moment; what is
-- said after it brings the chat back.

CREATE TABLE chats (
    chat_id  TEXT PRIMARY KEY,
    user_id  TEXT NOT NULL,
    entry    INTEGER NOT NULL, -- of the memory journal: the last change
    title    TEXT NOT NULL DEFAULT '',
    archived INTEGER NOT NULL DEFAULT 0,
    deleted  INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- A user's chats as lists show them.
CREATE VIEW chat_list AS
    SELECT s.chat_id, s.user_id, s.chat_key, s.name, coalesce(c.title, '') AS title, s.last_seq, s.segment, s.created_at,
        s.updated_at,
        coalesce(c.archived, 0) > 0 AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.chat_id = c.chat_id
            AND m.seq > c.archived AND m.role IN ('user', 'assistant') AND m.type IN ('text', 'scheduled')) AS archived
    FROM sessions s LEFT JOIN chats c ON c.chat_id = s.chat_id
    WHERE coalesce(c.deleted, 0) = 0 OR EXISTS (SELECT 1 FROM messages m WHERE m.chat_id = c.chat_id
        AND m.seq > c.deleted AND m.role IN ('user', 'assistant') AND m.type IN ('text', 'scheduled'));
