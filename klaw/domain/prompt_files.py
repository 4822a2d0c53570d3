"""Files of the workspace that reach later prompts, are found by search, or instruct an agent. Pure."""

from klaw.domain.names import LOCAL_USER, UserId

AGENT_FILES = ("SOUL.md", "IDENTITY.md", "AGENTS.md", "TOOLS.md")
"""What the agent is, the same for all users; in the workspace of the user ``local``, like its skills."""
USER_FILE = "USER.md"
HEARTBEAT_FILE = "HEARTBEAT.md"
MEMORY_FILE, MEMORY_FOLDER = "MEMORY.md", "memory"
SKILLS_FOLDER = "skills"


def prompt_files(user: UserId) -> tuple[str, ...]:
    """Names of such files, right in a user's folder."""
    return (*(AGENT_FILES if user == LOCAL_USER else ()), USER_FILE, HEARTBEAT_FILE, MEMORY_FILE)


def prompt_folders(user: UserId) -> tuple[str, ...]:
    return (MEMORY_FOLDER, *((SKILLS_FOLDER,) if user == LOCAL_USER else ()))


def is_prompt_file(user: UserId, path: str) -> bool:
    """Whether a path (relative to the user's folder, without links and ``..``) is one of them, in any case."""
    top = path.partition("/")[0].casefold()
    return any(top == name.casefold() for name in (*prompt_files(user), *prompt_folders(user)))
