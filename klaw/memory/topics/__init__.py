"""Topics: from finished sessions to summaries that search finds."""
