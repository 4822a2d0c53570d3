-- What calls to models used, one row for each turn or run and each model that answered in it. Made from turns.usage and
-- runs by triggers, so that every way in (a turn that ends, the logs, a reindex) keeps it; ordered by time, because
-- every question is about a span of time.

CREATE TABLE charges (
    ended_at           TEXT NOT NULL,
    source             TEXT NOT NULL CHECK (source IN ('turn', 'run', 'summary')),
    id                 TEXT NOT NULL, -- of the turn, run or summary
    model              TEXT NOT NULL, -- provider/model
    user_id            TEXT NOT NULL,
    chat_id            TEXT,          -- of a turn or summary
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

-- The way in: a record with its parts, one for each model, becomes rows. Numbers are bounded, so that no broken record can
-- make sums overflow. A part without a count of calls is of an earlier Klaw, or of whoever keeps tokens only: it is one
-- call to the turn's or run's model, whose price is not noted.
CREATE VIEW charged (ended_at, source, id, model, user_id, chat_id, task, parts) AS
    SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL WHERE 0;
CREATE TRIGGER charged_in INSTEAD OF INSERT ON charged BEGIN
    INSERT OR IGNORE INTO charges
    SELECT
        NEW.ended_at, NEW.source, NEW.id, coalesce(part ->> '$.model', NEW.model), NEW.user_id, NEW.chat_id, NEW.task,
        min(CAST(total(coalesce(part ->> '$.calls', 1)) AS INTEGER), 1000000000000000),
        min(CAST(total(part ->> '$.prompt_tokens') AS INTEGER), 1000000000000000),
        min(CAST(total(part ->> '$.completion_tokens') AS INTEGER), 1000000000000000),
        min(CAST(total(part ->> '$.cached_tokens') AS INTEGER), 1000000000000000),
        min(CAST(total(part ->> '$.cache_write_tokens') AS INTEGER), 1000000000000000),
        min(CAST(total(part ->> '$.cost_nano') AS INTEGER), 1000000000000000),
        min(CAST(total(coalesce(part ->> '$.unpriced_calls', NEW.model NOT LIKE 'local/%')) AS INTEGER), 1000000000000000),
        min(CAST(total(coalesce(
            part ->> '$.unpriced_tokens',
            (NEW.model NOT LIKE 'local/%')
                * (coalesce(part ->> '$.prompt_tokens', 0) + coalesce(part ->> '$.completion_tokens', 0))
        )) AS INTEGER), 1000000000000000),
        min(CAST(total(part ->> '$.estimated_calls') AS INTEGER), 1000000000000000)
    FROM (SELECT value AS part FROM json_each(NEW.parts) WHERE type = 'object')
    GROUP BY 4;
END;

CREATE VIEW turns_to_charge AS
    SELECT
        ended_at, 'turn', turn_id AS id, model, user_id, chat_id, NULL,
        CASE
            WHEN json_type(usage, '$.models') = 'array' THEN usage -> '$.models'
            WHEN json_type(usage, '$.prompt_tokens') = 'integer' THEN json_array(json(usage))
            ELSE '[]'
        END
    FROM turns;
CREATE VIEW runs_to_charge AS
    SELECT
        ended_at, 'run', id, model, user_id, NULL, task,
        CASE
            WHEN json_type(details, '$.usage.models') = 'array' THEN details -> '$.usage.models'
            WHEN prompt_tokens + completion_tokens > 0 THEN
                json_array(json_object('prompt_tokens', prompt_tokens, 'completion_tokens', completion_tokens))
            ELSE '[]'
        END
    FROM runs WHERE ended_at IS NOT NULL;

CREATE TRIGGER turns_charged AFTER INSERT ON turns BEGIN
    INSERT INTO charged SELECT * FROM turns_to_charge WHERE id = NEW.turn_id;
END;
CREATE TRIGGER turns_uncharged AFTER DELETE ON turns BEGIN
    DELETE FROM charges WHERE ended_at = OLD.ended_at AND source = 'turn' AND id = OLD.turn_id;
END;
CREATE TRIGGER runs_charged AFTER INSERT ON runs WHEN NEW.ended_at IS NOT NULL BEGIN
    INSERT INTO charged SELECT * FROM runs_to_charge WHERE id = NEW.id;
END;
CREATE TRIGGER runs_uncharged AFTER DELETE ON runs WHEN OLD.ended_at IS NOT NULL BEGIN
    DELETE FROM charges WHERE ended_at = OLD.ended_at AND source = 'run' AND id = OLD.id;
END;

INSERT INTO charged SELECT * FROM turns_to_charge;
INSERT INTO charged SELECT * FROM runs_to_charge;
