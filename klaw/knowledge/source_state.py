"""What a look at a source found, and what of that everybody is told. Pure."""

from collections import Counter
from collections.abc import Collection, Mapping

import attrs

from klaw.domain.text import plural


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
    "missing": ("watched folder is not there", "watched folders are not there"),
    "empty": ("watched folder is suddenly empty", "watched folders are suddenly empty"),
    "partly_empty": ("watched folder is suddenly empty in part", "watched folders are suddenly empty in part"),
    "unreadable": ("watched folder cannot be read as a whole", "watched folders cannot be read as a whole"),
    "not_allowed": ("watched folder may not be read any more", "watched folders may not be read any more"),
    "too_many": (
        "watched folder has too many files (kb.maxFiles)",
        "watched folders have too many files (kb.maxFiles)",
    ),
    "gone": ("page of a knowledge base is gone", "pages of knowledge bases are gone"),
    "unreachable": ("page of a knowledge base cannot be reached", "pages of knowledge bases cannot be reached"),
    "refused": ("page of a knowledge base may not be fetched", "pages of knowledge bases may not be fetched"),
}


def problems(states: Collection[SourceState]) -> dict[str, str]:
    """What does not work, for everybody: names belong to their users."""
    counts = Counter(state.code for state in states)
    more = {"missing": ": what was read of it is kept", "gone": ": their last copy is kept"}
    return {
        f"kb_{code}": plural(counts[code], one, many) + more.get(code, "")
        for code, (one, many) in _TOLD.items()
        if counts[code]
    }
