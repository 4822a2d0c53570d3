"""The child's lines (``output``) as the parent reads them, and the report on a document that is made of them. Pure."""

from typing import Annotated

import attrs

from klaw.convert import OMIT
from klaw.domain.knowledge import Block, DocumentProblem
from klaw.domain.text import printable

MAX_PROBLEMS = 100


@attrs.frozen(kw_only=True)
class ReaderEnd:
    """The last line."""

    language: str
    pages: int
    failed: Annotated[DocumentProblem | None, OMIT] = None
    """Why it counts as not read."""


@attrs.frozen(kw_only=True)
class ReaderLine:
    """One line of the child has one of these. A problem's text does not name the document."""

    format: Annotated[str | None, OMIT] = None
    title: Annotated[str | None, OMIT] = None
    look: Annotated[int | None, OMIT] = None
    page: Annotated[int | None, OMIT] = None
    block: Annotated[Block | None, OMIT] = None
    problem: Annotated[DocumentProblem | None, OMIT] = None
    end: Annotated[ReaderEnd | None, OMIT] = None


@attrs.frozen(kw_only=True)
class ReadingReport:
    """What a document is."""

    format: str = ""
    """A key of ``sniff.READERS``; empty: it was not found out."""
    title: str = ""
    """As the document gives it."""
    language: str = ""
    """``ru`` or ``en``, by its letters."""
    pages: int = 0
    """Slides and sheets are pages, too; 0 for a format without any."""
    problems: tuple[DocumentProblem, ...] = ()
    failed: bool = False
    """It counts as not read, whatever blocks there were; the last problem says why."""


class ReadingProblems:
    """The problems of one document, in the order in which they were found."""

    def __init__(self, name: str) -> None:
        self._name = printable(name)
        self._found: list[tuple[DocumentProblem, int | None]] = []
        """With the last page of a row of pages that have the same problem."""

    def add(self, problem: DocumentProblem) -> None:
        """Note one, if it is not noted yet and there are not too many."""
        if any(known == problem for known, _ in self._found):
            return
        if self._found:
            last, through = self._found[-1]
            end = through or last.page
            if end is not None and problem == attrs.evolve(last, page=end + 1):
                self._found[-1] = last, problem.page
                return
        if len(self._found) < MAX_PROBLEMS:
            self._found.append((problem, None))

    def end_with(self, problem: DocumentProblem) -> None:
        """Note the one for which the document counts as not read."""
        self._found.append((problem, None))

    def worded(self) -> tuple[DocumentProblem, ...]:
        """All of them, for people: with the document's name and the pages."""
        return tuple(self._worded(problem, through) for problem, through in self._found)

    def _worded(self, problem: DocumentProblem, through: int | None) -> DocumentProblem:
        where = self._name
        if problem.page is not None:
            where += f", page {problem.page}" if through is None else f", pages {problem.page} to {through}"
        return attrs.evolve(problem, text=f"{where}: {problem.text}")
