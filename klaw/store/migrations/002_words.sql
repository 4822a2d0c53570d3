-- The tokenizer finds words of scripts without spaces, and emoji: the index is made anew from the messages.

DROP TABLE messages_fts;
CREATE VIRTUAL TABLE messages_fts USING fts5 (
    content, scope,
    content = 'messages_search', content_rowid = 'rowid', tokenize = 'klaw'
);
INSERT INTO messages_fts (messages_fts) VALUES ('rebuild');
