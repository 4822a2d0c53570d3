"""Links to the pages of the web that an answer cites, below it. Pure."""

from collections.abc import Mapping
from typing import Any

import attrs

from klaw.knowledge import citations
from klaw.toolbox import web_sources
from klaw.toolbox.web_sources import WebSources


@attrs.frozen(kw_only=True)
class AnswerWithLinks:
    text: str
    """Without marks that name nothing; ``end`` are the links behind it."""
    end: str = ""
    metadata: Mapping[str, Any] = attrs.Factory(dict)
    removed: int = 0

    @property
    def whole(self) -> str:
        return f"{self.text.rstrip()}{self.end}" if self.end else self.text


def link_sources(answer: str, sources: WebSources, passages: Mapping[int, str] | None = None) -> AnswerWithLinks:
    """Check an answer's marks if pages were found for it; ``passages``: of knowledge bases, by number."""
    if not sources.texts:
        return AnswerWithLinks(text=answer)
    checked = citations.check(answer, {**(passages or {}), **sources.texts})
    cited = sources.cited(checked.cited)
    end = f"\n\n{web_sources.links(cited)}" if cited else ""
    kept = {web_sources.KEY: cited} if cited else {}
    return AnswerWithLinks(text=checked.text, end=end, metadata=kept, removed=checked.removed)
