-- A user's chats are few and sorted when they are asked for: an index by time was written with every message.

DROP INDEX sessions_by_user;
CREATE INDEX sessions_by_user ON sessions (user_id);
