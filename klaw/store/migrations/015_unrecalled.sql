-- Numbers of a chat's messages that recall never brings back by itself, as a JSON list.
ALTER TABLE chats ADD COLUMN unrecalled TEXT NOT NULL DEFAULT '[]';
