-- People whom users speak of.

-- One row per person that was not removed. rowid is the number of the memory journal's entry that made it, entry that of
-- the last one that changed it: so a rebuild gives the same rows.
CREATE TABLE people (
    rowid       INTEGER PRIMARY KEY,
    entry       INTEGER NOT NULL,
    id          TEXT NOT NULL,
    user_id     TEXT NOT NULL,
    name        TEXT NOT NULL,
    aliases     TEXT NOT NULL CHECK (json_valid(aliases)),
    relation    TEXT NOT NULL,
    source      TEXT NOT NULL CHECK (source IN ('archivist', 'user')),
    said_at     TEXT NOT NULL,
    created_at  TEXT NOT NULL,
    updated_at  TEXT NOT NULL,
    merged_into TEXT, -- who it turned out to be; history then
    UNIQUE (user_id, id)
) STRICT;

-- The names of those that are no history. normal: klaw.domain.person.normal_name
CREATE TABLE person_names (
    person  INTEGER NOT NULL REFERENCES people (rowid) ON DELETE CASCADE,
    user_id TEXT NOT NULL,
    normal  TEXT NOT NULL,
    PRIMARY KEY (user_id, normal, person)
) STRICT, WITHOUT ROWID;
CREATE INDEX person_names_by_person ON person_names (person);

-- Topics that name a person. They stay when the person is removed or merged, so that both can be taken back.
CREATE TABLE person_mentions (
    entry      INTEGER PRIMARY KEY,
    user_id    TEXT NOT NULL,
    person_id  TEXT NOT NULL,
    topic      TEXT NOT NULL,
    message_id TEXT NOT NULL,
    at         TEXT NOT NULL,
    UNIQUE (user_id, person_id, topic)
) STRICT;

-- Every change of a person, as the memory journal has it. value is the whole person; NULL: it was removed.
CREATE TABLE person_changes (
    entry     INTEGER PRIMARY KEY,
    user_id   TEXT NOT NULL,
    person_id TEXT NOT NULL,
    at        TEXT NOT NULL,
    value     TEXT CHECK (value IS NULL OR json_valid(value))
) STRICT;
CREATE INDEX person_changes_by_person ON person_changes (user_id, person_id, entry);
