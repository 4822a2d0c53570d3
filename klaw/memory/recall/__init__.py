"""The pipeline of search (``pipeline``), and recall: from a query to the earlier messages that matter, and why."""
