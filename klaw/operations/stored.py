# ruff: noqa: PLC0414  the aliases make the names public to a type checker
"""The store's modules. Each is imported when a handler first uses it, because the command line imports operations for
their arguments and starts faster without the store."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from klaw.store import originals as originals
    from klaw.store.kinds import channels as channels
    from klaw.store.kinds import chats as chats
    from klaw.store.kinds import core_memory as core_memory
    from klaw.store.kinds import facts as facts
    from klaw.store.kinds import imports as imports
    from klaw.store.kinds import inventory as inventory
    from klaw.store.kinds import memory_files as memory_files
    from klaw.store.kinds import messages as messages
    from klaw.store.kinds import pending as pending
    from klaw.store.kinds import people as people
    from klaw.store.kinds import records as records
    from klaw.store.kinds import summaries as summaries
    from klaw.store.kinds import tasks as tasks
    from klaw.store.kinds import topic_changes as topic_changes
    from klaw.store.kinds import topics as topics
    from klaw.store.kinds import turns as turns
    from klaw.store.kinds import usage as usage
    from klaw.store.kinds.knowledge import bases as bases
    from klaw.store.kinds.knowledge import documents as documents
    from klaw.store.kinds.knowledge import message_files as message_files
    from klaw.store.kinds.knowledge import removal as removal
    from klaw.store.kinds.knowledge import sources as sources
    from klaw.store.kinds.variants import branches as branches
    from klaw.store.search import history_search as history_search
    from klaw.store.search import whereabouts as whereabouts
else:

    def __getattr__(name: str) -> Any:
        for folder in ("", "kinds.", "kinds.knowledge.", "kinds.variants.", "search."):
            module = f"klaw.store.{folder}{name}"
            if not name.startswith("__") and find_spec(module) is not None:
                globals()[name] = import_module(module)  # so that it is looked for only once
                return globals()[name]
        raise AttributeError(name)
