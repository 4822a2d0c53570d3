"""Known models and their folders: fetching, converting, checking. Sync code without trio."""
