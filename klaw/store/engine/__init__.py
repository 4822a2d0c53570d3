"""Connections, the writer, the logs and their group commit, reconciliation at the start."""
