"""Forgetting: what was made of what, and taking it out of the logs and the database."""
