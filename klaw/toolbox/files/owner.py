"""Which part of the workspace is whose. Pure.

The workspace belongs to the user ``local``, who installed Klaw: its prompt files shape every user's answers, and
MEMORY.md is what the agent knows of that user. Every other user has a folder of their own in it, and neither side can
name a file of another.
"""

from pathlib import Path

from klaw.config.paths import USERS_FOLDER, encode_name
from klaw.domain.names import LOCAL_USER, UserId
from klaw.toolbox.files.beneath import Root


def root_of(workspace: Path, user: UserId) -> Root:
    """The folder that a user's tools may use."""
    if user == LOCAL_USER:
        return Root(folder=workspace, closed=frozenset({USERS_FOLDER}))
    return Root(folder=workspace, below=(USERS_FOLDER, encode_name(user)))
