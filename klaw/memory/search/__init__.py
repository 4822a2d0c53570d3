"""``memory_search``: over all that was said, and what is kept beside it."""
