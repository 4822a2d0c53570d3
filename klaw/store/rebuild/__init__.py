"""Rebuilding klaw.db from the logs: a second database, compared with the one in use by content, and swapped in."""
