"""Known models and their folders: what there is, where its weights come from, how to fetch and convert them.

Sync code without trio; used by ``klaw models``, by tests, and (``manifest`` only) by the embedding model.
"""
