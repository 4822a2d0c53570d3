"""Which files of the workspace reach later prompts: they stand in them, are found by search, or tell an agent what to
do. Pure."""

from klaw.domain.names import LOCAL_USER, UserId

AGENT_FILES = ("SOUL.md", "IDENTITY.md", "AGENTS.md", "TOOLS.md")
"""What the agent is, the same for all users. In the workspace of the user ``local``, like its skills."""
USER_FILE = "USER.md"
HEARTBEAT_FILE = "HEARTBEAT.md"
MEMORY_FILE, MEMORY_FOLDER = "MEMORY.md", "memory"
SKILLS_FOLDER = "skills"


def prompt_files(user: UserId) -> tuple[str, ...]:
    """Names of such files, right in a user's folder."""
    return (*(AGENT_FILES if user == LOCAL_USER else ()), USER_FILE, HEARTBEAT_FILE, MEMORY_FILE)


def prompt_folders(user: UserId) -> tuple[str, ...]:
    """… and of folders of which every file is one."""
    return (MEMORY_FOLDER, *((SKILLS_FOLDER,) if user == LOCAL_USER else ()))


def is_prompt_file(user: UserId, path: str) -> bool:
    """Whether a file is one of them.

    Args:
        user: whose folder it is in.
        path: relative to it, without links and ``..``. Upper and lower case are one, as on some disks.
    """
    top = path.partition("/")[0].casefold()
    return any(top == name.casefold() for name in (*prompt_files(user), *prompt_folders(user)))
