"""Auto-RAG: from a query to the earlier messages that matter, and why."""
