-- Codes of the tokens of messages that have a vector, made with it (klaw/store/search/token_codes.py). Apart from the
-- messages, so that whoever reads those does not walk over them.
CREATE TABLE token_codes (
    rowid INTEGER PRIMARY KEY, -- of the message
    codes BLOB NOT NULL
) STRICT;
-- What drops a vector sets this mark back: the codes were made of the same text by the same model.
CREATE TRIGGER token_codes_dropped AFTER UPDATE OF embedded ON messages WHEN new.embedded = 0 BEGIN
    DELETE FROM token_codes WHERE rowid = new.rowid;
END;
