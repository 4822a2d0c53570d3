"""Tasks that run on time and on their own: triggers, what is due, limits, and the history of earlier runs."""
