"""What a scan of a source found, and which of it ``klaw status`` shows. Pure."""

from collections.abc import Collection, Mapping

import attrs


@attrs.frozen(kw_only=True)
class SourceState:
    """How a source was when it was last looked at."""

    code: str = "ok"
    """``missing``: a folder is not there, and its documents are kept. ``empty``, ``partly_empty``: likewise it, or a
    folder in it, is suddenly empty. ``unreadable``: it, or a folder in it. ``not_allowed``: it may not be read.
    ``too_many``: it has more files than ``kb.maxFiles``. ``gone``, ``unreachable``, ``refused``: of a page, whose last
    copy is kept."""
    text: str = ""
    """For people; empty when all is well."""
    looked_at: str = ""
    """ISO-8601 UTC."""
    files: int = 0
    """In a folder."""
    left_out: Mapping[str, int] = attrs.Factory(dict)
    """How many names of a folder are no documents: ``hidden``, ``link``, ``special``, ``name``."""

    @property
    def can_be_read(self) -> bool:
        """Whether its documents can be read now."""
        return self.code not in ("missing", "empty", "not_allowed")


_TOLD = {
    "missing": "a watched folder is not there: what was read of it is kept",
    "empty": "a watched folder is suddenly empty",
    "partly_empty": "a watched folder is suddenly empty in part",
    "unreadable": "a watched folder cannot be read in full",
    "not_allowed": "a watched folder may no longer be read",
    "too_many": "a watched folder has too many files (kb.maxFiles)",
    "gone": "a page of a knowledge base is gone: its last copy is kept",
    "unreachable": "a page of a knowledge base cannot be reached",
    "refused": "a page of a knowledge base may not be fetched",
}


def problems(states: Collection[SourceState]) -> dict[str, str]:
    """What does not work, for everybody: names and numbers belong to their users."""
    found = {state.code for state in states}
    return {f"kb_{code}": text for code, text in _TOLD.items() if code in found}
