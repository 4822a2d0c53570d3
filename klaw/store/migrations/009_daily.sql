-- The day's talk drawn into facts, and what work in the background used of models.

-- Where a fact that was drawn from a day's talk comes from.
ALTER TABLE facts ADD COLUMN day TEXT;

-- Entries of the memory journal about days: which messages were drawn, and (done) that nothing is left of the day.
CREATE TABLE day_entries (
    entry    INTEGER PRIMARY KEY,
    user_id  TEXT NOT NULL,
    day      TEXT NOT NULL, -- a date on the installation's calendar
    at       TEXT NOT NULL,
    done     INTEGER NOT NULL CHECK (done IN (0, 1)),
    messages TEXT NOT NULL CHECK (json_valid(messages)) -- row ids, as ranges
) STRICT;
CREATE INDEX day_entries_by_user ON day_entries (user_id, day) WHERE done = 1;
-- Messages that were drawn with their day: no topic draws them again.
CREATE TABLE drawn_messages (
    rowid   INTEGER PRIMARY KEY,
    user_id TEXT NOT NULL
) STRICT;
-- What a user and the assistant said on a day.
CREATE INDEX messages_said ON messages (user_id, created_at)
    WHERE role IN ('user', 'assistant') AND type = 'text';

-- What work in the background used, one row for each piece of work; parts: as usage.models of a turn.
CREATE TABLE background_charges (
    entry   INTEGER PRIMARY KEY, -- of the memory journal
    at      TEXT NOT NULL,
    source  TEXT NOT NULL,
    user_id TEXT NOT NULL,
    chat_id TEXT,
    parts   TEXT NOT NULL CHECK (json_valid(parts))
) STRICT;

CREATE INDEX background_of_summaries ON background_charges (chat_id, at) WHERE source = 'summary';

-- charges as before, but of more sources. A rename would check the triggers that write to it, so its rows move twice.
CREATE TABLE charges_before AS SELECT * FROM charges;
DROP TABLE charges;
CREATE TABLE charges (
    ended_at           TEXT NOT NULL,
    source             TEXT NOT NULL CHECK (length(source) BETWEEN 1 AND 32), -- turn, run, summary, topics, facts …
    id                 TEXT NOT NULL, -- of the turn, run, summary or entry
    model              TEXT NOT NULL, -- provider/model
    user_id            TEXT NOT NULL,
    chat_id            TEXT,          -- of a run: none
    task               TEXT,          -- of a run
    calls              INTEGER NOT NULL,
    prompt_tokens      INTEGER NOT NULL,
    completion_tokens  INTEGER NOT NULL,
    cached_tokens      INTEGER NOT NULL,
    cache_write_tokens INTEGER NOT NULL,
    cost_nano          INTEGER NOT NULL, -- nano-dollars, of the calls whose price was known
    unpriced_calls     INTEGER NOT NULL,
    unpriced_tokens    INTEGER NOT NULL,
    estimated_calls    INTEGER NOT NULL,
    PRIMARY KEY (ended_at, source, id, model)
) STRICT, WITHOUT ROWID;
INSERT INTO charges SELECT * FROM charges_before;
DROP TABLE charges_before;

CREATE TRIGGER background_charged AFTER INSERT ON background_charges BEGIN
    INSERT INTO charged VALUES (
        NEW.at, NEW.source, CAST(NEW.entry AS TEXT), '', NEW.user_id, NEW.chat_id, NULL, NEW.parts
    );
END;
CREATE TRIGGER background_uncharged AFTER DELETE ON background_charges BEGIN
    DELETE FROM charges WHERE ended_at = OLD.at AND source = OLD.source AND id = CAST(OLD.entry AS TEXT);
END;

-- What a summary used is noted like other work in the background, at the very time that the summary has; those of before
-- have only their own tokens. What it cost stays spent, also when it is removed.
DROP TRIGGER summaries_charged;
CREATE TRIGGER summaries_charged AFTER INSERT ON summaries
WHEN NEW.prompt_tokens + NEW.completion_tokens > 0 AND NOT EXISTS (
    SELECT 1 FROM background_charges
    WHERE source = 'summary' AND chat_id = NEW.chat_id AND at = NEW.created_at AND user_id = NEW.user_id
) BEGIN
    INSERT INTO charged VALUES (
        NEW.created_at, 'summary', NEW.chat_id || '#' || NEW.number, NEW.model, NEW.user_id, NEW.chat_id, NULL,
        json_array(json_object('prompt_tokens', NEW.prompt_tokens, 'completion_tokens', NEW.completion_tokens))
    );
END;
