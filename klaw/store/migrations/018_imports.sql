-- Messages of other programs name the import that brought them in `channel`. By this index an import is found again.
CREATE INDEX messages_imported ON messages (user_id, channel) WHERE channel GLOB 'import:*' AND role <> 'system';

-- Thousands of old sessions would cost a call to a model each: of what was imported only that waits for a topic for
-- which somebody asked.
DROP INDEX messages_unarchived;
CREATE INDEX messages_unarchived ON messages (user_id, rowid, chat_id, role, type, created_at)
    WHERE topic_id IS NULL AND role IN ('user', 'assistant', 'tool')
        AND type IN ('text', 'scheduled', 'tool_call', 'tool_result')
        AND (channel NOT GLOB 'import:*' OR metadata ->> '$.topics');
