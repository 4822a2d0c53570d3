-- How much the models of a chat think, as its user chose with /think.

ALTER TABLE sessions ADD COLUMN thinking TEXT;
