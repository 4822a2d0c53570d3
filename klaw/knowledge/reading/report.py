"""What became of a document that was read: what it is, and what is wrong with it, by file and page. Pure."""

import attrs

from klaw.domain.knowledge import DocumentProblem
from klaw.domain.text import printable
from klaw.knowledge.reading.lines import Told

MAX_PROBLEMS = 100


@attrs.frozen(kw_only=True)
class Report:
    """What a document is."""

    format: str = ""
    """One of ``reader.FORMATS``; empty: it was not found out."""
    title: str = ""
    """As the document gives it."""
    language: str = ""
    """``ru`` or ``en``, by its letters."""
    pages: int = 0
    """Slides and sheets are pages, too; 0 for a format without any."""
    problems: tuple[DocumentProblem, ...] = ()
    failed: bool = False
    """It counts as not read, whatever blocks there were; the last problem says why."""


class Problems:
    """Those of one document, in the order in which they were met.

    Args:
        name: of the document, for the messages.
    """

    def __init__(self, name: str) -> None:
        self._name = printable(name)
        self._found: list[tuple[Told, int | None]] = []
        """With the last page of a row of pages that have the same problem."""

    def add(self, problem: Told) -> None:
        """Note one, if it is not noted yet and there are not too many."""
        if any(told == problem for told, _ in self._found):
            return
        if self._found:
            last, through = self._found[-1]
            end = through or last.page
            if end is not None and problem == attrs.evolve(last, page=end + 1):
                self._found[-1] = last, problem.page
                return
        if len(self._found) < MAX_PROBLEMS:
            self._found.append((problem, None))

    def end_with(self, problem: Told) -> None:
        """Note the one for which the document counts as not read."""
        self._found.append((problem, None))

    def worded(self) -> tuple[DocumentProblem, ...]:
        """All of them, for people."""
        return tuple(self._worded(problem, through) for problem, through in self._found)

    def _worded(self, problem: Told, through: int | None) -> DocumentProblem:
        where = self._name
        if problem.page is not None:
            pages = f"page {problem.page}" if through is None else f"pages {problem.page} to {through}"
            where = f"{where}, {pages}"
        return DocumentProblem(code=problem.code, text=f"{where}: {problem.text}", page=problem.page)
