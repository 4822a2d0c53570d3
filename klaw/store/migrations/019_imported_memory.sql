-- Which import brought a fact or a person.
ALTER TABLE facts ADD COLUMN imported TEXT;
ALTER TABLE people ADD COLUMN imported TEXT;
