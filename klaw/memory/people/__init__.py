"""People whom a user speaks of."""
