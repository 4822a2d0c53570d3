-- Pinned and temporary chats, and titles that a model makes (`titled`: of the messages up to this seq). A chat whose name
-- Klaw made is called by how its first message begins until it has a title; `preview` is how its last one begins.
ALTER TABLE chats ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0;
ALTER TABLE chats ADD COLUMN temporary INTEGER NOT NULL DEFAULT 0;
ALTER TABLE chats ADD COLUMN titled INTEGER NOT NULL DEFAULT 0;
CREATE INDEX chats_temporary ON chats (chat_id) WHERE temporary;
DROP VIEW chat_list;
CREATE VIEW chat_list AS
    SELECT s.chat_id, s.user_id, s.chat_key, s.name, coalesce(c.title, '') <> '' AS named,
        CASE WHEN coalesce(c.title, '') = ''
                AND s.name GLOB 'chat-[0-9][0-9a-z][0-9a-z][0-9a-z][0-9a-z][0-9a-z][0-9a-z][0-9a-z]'
            THEN coalesce((SELECT substr(m.content, 1, 400) FROM messages m WHERE m.chat_id = s.chat_id
                AND m.role = 'user' AND m.type = 'text' AND m.content <> '' ORDER BY m.seq LIMIT 1), '')
            ELSE coalesce(c.title, '') END AS title,
        s.last_seq, s.segment, s.created_at, s.updated_at,
        coalesce(c.archived, 0) > 0 AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.chat_id = c.chat_id
            AND m.seq > c.archived AND m.role IN ('user', 'assistant') AND m.type IN ('text', 'scheduled')) AS archived,
        coalesce(c.bases, '[]') AS bases, coalesce(c.pinned, 0) AS pinned, coalesce(c.temporary, 0) AS temporary,
        coalesce((SELECT substr(m.content, 1, 400) FROM messages m WHERE m.chat_id = s.chat_id
            AND m.role IN ('user', 'assistant') AND m.type IN ('text', 'scheduled') ORDER BY m.seq DESC LIMIT 1), '')
            AS preview
    FROM sessions s LEFT JOIN chats c ON c.chat_id = s.chat_id
    WHERE coalesce(c.deleted, 0) = 0 OR EXISTS (SELECT 1 FROM messages m WHERE m.chat_id = c.chat_id
        AND m.seq > c.deleted AND m.role IN ('user', 'assistant') AND m.type IN ('text', 'scheduled'));
