-- What is told of a message beside its words, as bits of a number (klaw/store/engine/traits.py): a row for each message
-- that is searched. Apart from the messages, so that whoever ranks many of them reads few pages.
CREATE TABLE message_traits (
    rowid  INTEGER PRIMARY KEY, -- of the message
    traits INTEGER NOT NULL
) STRICT;
CREATE TRIGGER message_traits_made AFTER INSERT ON messages
    WHEN new.role IN ('user', 'assistant') AND new.type IN ('text', 'scheduled') BEGIN
    INSERT INTO message_traits (rowid, traits) VALUES (new.rowid, klaw_traits(new.content));
END;
CREATE TRIGGER message_traits_changed AFTER UPDATE OF role, type, content ON messages BEGIN
    DELETE FROM message_traits WHERE rowid = new.rowid;
    INSERT INTO message_traits (rowid, traits) SELECT new.rowid, klaw_traits(new.content)
        WHERE new.role IN ('user', 'assistant') AND new.type IN ('text', 'scheduled');
END;
CREATE TRIGGER message_traits_dropped AFTER DELETE ON messages BEGIN
    DELETE FROM message_traits WHERE rowid = old.rowid;
END;
INSERT INTO message_traits (rowid, traits)
    SELECT rowid, klaw_traits(content) FROM messages WHERE role IN ('user', 'assistant') AND type IN ('text', 'scheduled');
