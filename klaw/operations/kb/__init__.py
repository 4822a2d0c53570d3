"""Knowledge bases: what is in them, who may use them, and which chats are answered from them.

A base is named by its id or its name. Of two of one name the user's own is meant; between bases of others the id
decides. The answers hold texts of documents, so they never go into a log.
"""

from klaw.operations.kb import bases, documents, sources, upkeep
from klaw.operations.kb.bases import NOUN

__all__ = ["NOUN", "bases", "documents", "sources", "upkeep"]
