"""Facts, and the memory files of a workspace."""
