"""The store: JSONL logs as the source of truth, klaw.db as the index over them. The only package that imports apsw."""
