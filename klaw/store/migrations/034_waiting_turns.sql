-- Turns that wait for what the tools of a program give. SQLite cannot change a CHECK but by its text; the index has every
-- connection read the schema again.

PRAGMA writable_schema = ON;
UPDATE sqlite_schema
SET sql = replace(sql, '(''done'', ''stopped'', ''failed'')', '(''done'', ''stopped'', ''failed'', ''waiting'')')
WHERE type = 'table' AND name = 'turns';
PRAGMA writable_schema = RESET;
CREATE INDEX turns_waiting ON turns (user_id) WHERE status = 'waiting';
