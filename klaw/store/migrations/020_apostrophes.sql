-- The tokenizer parts words at apostrophes, and knows all that are typed for one: the indexes are made anew.

INSERT INTO messages_fts (messages_fts) VALUES ('rebuild');
INSERT INTO facts_fts (facts_fts) VALUES ('rebuild');
INSERT INTO chunks_fts (chunks_fts) VALUES ('rebuild');
INSERT INTO tool_notes_fts (tool_notes_fts) VALUES ('rebuild');
INSERT INTO topics_fts (topics_fts) VALUES ('rebuild');
INSERT INTO kb_passages_fts (kb_passages_fts) VALUES ('rebuild');
