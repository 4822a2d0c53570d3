"""Making klaw.db anew from the logs: a second database, compared with the one in use by content, and swapped in."""
