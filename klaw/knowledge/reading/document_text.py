"""A document of the web as one text, with its pages and headings marked."""

from klaw.domain.knowledge import DocumentText
from klaw.knowledge.reading.reader import DocumentReading, ReadingLimits

LIMITS = ReadingLimits(seconds=55.0, page_s=20.0, parsing_s=50.0)


async def document_text(file: int, *, name: str, most: int) -> DocumentText:
    """``ReadDocument``: an open file, read by the child."""
    pieces: list[str] = []
    page: int | None = None
    headings: tuple[str, ...] = ()
    chars = 0
    async with DocumentReading(file, name=name, limits=LIMITS) as reading:
        async for block in reading:
            if block.page != page:
                pieces.append(f"[page {block.page}]")
            if block.headings not in ((), headings):
                pieces.append(f"{'#' * min(6, len(block.headings))} {block.headings[-1]}")
            pieces.append(block.text)
            page, headings, chars = block.page, block.headings, chars + len(block.text)
            if chars > most:
                break
        report = reading.report
    problems = tuple(each.text for each in report.problems)
    return DocumentText(title=report.title, text="\n\n".join(pieces)[:most], cut=chars > most, problems=problems)
