"""Backups of an installation: made beside a running server, looked through, checked, restored."""
