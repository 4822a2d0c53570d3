"""The pages that the tools of a turn or run brought, numbered so that its answer can cite them. Pure."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeAlias

import attrs

from klaw.toolbox.search_services import line_of

KEY = "sources"
"""In the metadata of a tool's result: the sources that it brought first; in that of an answer: those that it cites."""
MOST = 99
"""The highest number that a mark may have (``knowledge.citations``)."""
MAX_TITLE = 120
_IN_MARKDOWN = str.maketrans({**dict.fromkeys("\\`*<>$~|", ""), "[": "(", "]": ")"})
_IN_LINK = str.maketrans({"(": "%28", ")": "%29", "<": "%3C", ">": "%3E", "\\": "%5C"})

WebSource: TypeAlias = tuple[int, str, str]
"""Number, address, title."""


@attrs.define
class WebSources:
    after: int = 0
    """Numbers up to this one belong to the passages of knowledge bases."""
    texts: dict[int, str] = attrs.Factory(dict)
    """What the model was given of each, which an answer may quote."""
    _by_url: dict[str, WebSource] = attrs.Factory(dict)
    _of_call: dict[str, list[WebSource]] = attrs.Factory(dict)

    def add(self, url: str, title: str, text: str, call: str) -> str:
        """The mark of a page that a call brought, such as ``[1]``; empty when there are no numbers left."""
        if url not in self._by_url:
            number = max([self.after, *self.texts]) + 1
            if number > MOST:
                return ""
            self._by_url[url] = (number, url, title[:MAX_TITLE])
            self._of_call.setdefault(call, []).append(self._by_url[url])
        number = self._by_url[url][0]
        self.texts[number] = f"{self.texts.get(number, '')}\n{title}\n{text}"
        return f"[{number}]"

    def brought_by(self, call: str) -> list[WebSource]:
        return self._of_call.get(call, [])

    def restore(self, metadata: Mapping[str, Any], text: str) -> None:
        """Take up what an interrupted turn's result of a tool brought."""
        for number, url, title in metadata.get(KEY, ()):
            self._by_url[url] = (number, url, title)
            self.texts[number] = text

    def cited(self, numbers: Collection[int]) -> list[WebSource]:
        return sorted(each for each in self._by_url.values() if each[0] in numbers)


def links(cited: Iterable[WebSource]) -> str:
    """What stands under an answer: a line of Markdown for each page that it cites."""
    return "\n".join(
        f"[{number}] [{_shown(title) or _shown(url)}]({url.translate(_IN_LINK)})" for number, url, title in cited
    )


def _shown(title: str) -> str:
    return line_of(title, MAX_TITLE).translate(_IN_MARKDOWN).strip()
