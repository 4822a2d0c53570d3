-- Which program saved a fact over MCP.
ALTER TABLE facts ADD COLUMN client TEXT;
