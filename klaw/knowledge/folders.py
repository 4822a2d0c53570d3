"""Which folders a base may have as sources. A user may add what lies below a folder of ``kb.folders`` or of the
own workspace, the operator anything but Klaw's own folders. What touches the disk blocks."""

from collections.abc import Sequence
from pathlib import Path

from klaw.config import safe_open
from klaw.config.paths import USERS_FOLDER, Paths, below_of_user
from klaw.config.tools import KnowledgeConfig
from klaw.domain.knowledge import Source
from klaw.domain.names import LOCAL_USER, UserId
from klaw.errors import NotAllowed


def private(paths: Paths) -> tuple[Path, ...]:
    """Klaw's own folders and the users' workspaces, which are never read as part of a folder above them."""
    own = (paths.data_dir, paths.config_dir, paths.state_dir, paths.runtime_dir, paths.models_dir, paths.backups_dir)
    return (*own, paths.workspace / USERS_FOLDER)


def allowed(source: Source, config: KnowledgeConfig, paths: Paths) -> str:
    """Why a folder may not be read; empty when it may. It may have been allowed when it was added."""
    try:
        _check(Path(source.where), source.added_by, config, paths)
    except (NotAllowed, OSError) as error:
        return str(error) if isinstance(error, NotAllowed) else "it is not there, or may not be read"
    return ""


def checked(where: str, added_by: str, config: KnowledgeConfig, paths: Paths) -> str:
    """The path without links of a folder that may be added. ``added_by``: empty for the operator. Raises NotAllowed."""
    path = Path(where)
    if not path.is_absolute() or "\0" in where or ".." in path.parts:
        raise NotAllowed("a folder is named by its absolute path, without ..")
    try:
        path = path if added_by else path.resolve(strict=True)
        return str(_check(path, added_by, config, paths))
    except FileNotFoundError:
        raise NotAllowed(f"there is no file {where}, and no such folder on the server's machine") from None
    except (OSError, ValueError):  # a name that is too long, or that no file has
        raise NotAllowed("it cannot be read by the server, or is a link or no folder") from None


def _check(path: Path, added_by: str, config: KnowledgeConfig, paths: Paths) -> Path:
    workspace = paths.workspace / below_of_user(UserId(added_by or LOCAL_USER), "")
    chosen: Sequence[Path] = [workspace, *map(Path, config.folders)] if added_by else [Path("/")]
    roots = (form for each in chosen for form in (each, each.resolve()))  # links on the way there were chosen, too
    root = next((each for each in roots if path.is_relative_to(each)), None)
    if root is None:
        named = "".join(f", or below {each}" for each in config.folders)
        raise NotAllowed(f"you may add folders of your workspace{named} (kb.folders)")
    with safe_open.opened_folder(root, str(path.relative_to(root))):
        found = path.resolve()
    if not found.is_relative_to(workspace.resolve()) or _of_others(found, added_by, paths):
        for own in private(paths):
            if found.is_relative_to(own.resolve()):
                raise NotAllowed("this is a folder of Klaw's own: it holds what others said")
    return found


def _of_others(path: Path, added_by: str, paths: Paths) -> bool:
    """Whether it is in the workspace of another user than ``local``, whose own holds all of these."""
    users = (paths.workspace / USERS_FOLDER).resolve()
    return added_by in ("", LOCAL_USER) and path.is_relative_to(users)
