"""What search services are asked, and what they answer: one dialect for each. Pure.

Whatever a service sends is data: each field is one printable line of bounded length."""

import datetime as dt
import json
from collections.abc import Callable, Iterator, Mapping
from html import unescape
from typing import Any, Literal, TypeAlias
from urllib.parse import urlencode

import attrs

from klaw.domain.text import clean_output, cut, one_line

Recency: TypeAlias = Literal["day", "week", "month", "year"]
MAX_QUERY = 400
"""Characters; Brave and Tavily refuse longer ones."""
MAX_TITLE, MAX_EXCERPT, MAX_DATE = 200, 700, 40
_DAYS = {"day": 1, "week": 7, "month": 31, "year": 366}
_JOINERS = "\u200c\u200d"


@attrs.frozen(kw_only=True)
class SearchResult:
    url: str
    """As the service gave it, unchecked."""
    title: str
    date: str = ""
    excerpt: str


@attrs.frozen(kw_only=True)
class SearchQuery:
    text: str
    count: int
    recency: Recency | None = None
    now: float
    """Unix seconds: one dialect wants a date."""


@attrs.frozen(kw_only=True)
class SearchRequest:
    """A request below the address of a service; a ``body`` is sent with POST."""

    path: str
    headers: Mapping[str, str]
    body: bytes | None = None


@attrs.frozen(kw_only=True)
class SearchService:
    name: str
    url: str = ""
    """Its API; empty: the operator names one."""
    key_env: str = ""
    """The usual variable of its key; empty: it wants none."""
    key_page: str = ""
    """Where a person gets a key."""
    request: Callable[[SearchQuery, str], SearchRequest]
    """Made of a query and a key."""
    rows: tuple[str, ...] = ("results",)
    """Where the answer has its list of results."""
    excerpts: tuple[str, ...]
    """Their fields, as ``dates``: the first that is there counts."""
    dates: tuple[str, ...]
    escaped: bool = False
    """Its texts are HTML."""

    def read(self, answer: object, most: int) -> list[SearchResult]:
        """Raises ValueError: it is not the answer to a search."""
        for name in self.rows:
            # Brave leaves "web" out when it found nothing.
            answer = answer.get(name, {"results": []} if name == "web" else None) if isinstance(answer, dict) else None
        if isinstance(answer, list):
            return [*self._results(answer[:most])]
        raise ValueError("no list of results")

    def _results(self, rows: list[Any]) -> Iterator[SearchResult]:
        for row in rows:
            if isinstance(row, dict) and isinstance(row.get("url"), str):
                excerpt, date = (self._first(row, names) for names in (self.excerpts, self.dates))
                yield SearchResult(
                    url=row["url"],
                    title=self._line(row.get("title"), MAX_TITLE),
                    date=self._line(date[:10] if date[4:5] == date[7:8] == "-" else date, MAX_DATE),
                    excerpt=self._line(excerpt, MAX_EXCERPT),
                )

    def _first(self, row: Mapping[str, Any], names: tuple[str, ...]) -> str:
        found = next((row[name] for name in names if row.get(name)), "")
        return " … ".join(map(str, found[:5])) if isinstance(found, list) else str(found)

    def _line(self, text: object, most: int) -> str:
        return line_of(unescape(text) if self.escaped and isinstance(text, str) else text, most)


def line_of(text: object, most: int) -> str:
    """A text from outside as one line of printable characters; empty for what is no text."""
    plain = one_line(clean_output(text[: 8 * most])) if isinstance(text, str) else ""
    return cut("".join(each for each in plain if each.isprintable() or each in _JOINERS), most)


def _posted(path: str, headers: Mapping[str, str], **members: Any) -> SearchRequest:
    body = json.dumps({name: value for name, value in members.items() if value is not None}).encode()
    return SearchRequest(path=path, headers={"Content-Type": "application/json", **headers}, body=body)


def _got(path: str, headers: Mapping[str, str], **members: Any) -> SearchRequest:
    given = {name: value for name, value in members.items() if value is not None}
    return SearchRequest(path=f"{path}?{urlencode(given)}", headers=headers)


def _searxng(query: SearchQuery, _key: str) -> SearchRequest:
    return _got("/search", {}, q=query.text, format="json", time_range=query.recency)


def _brave(query: SearchQuery, key: str) -> SearchRequest:
    fresh = f"p{query.recency[0]}" if query.recency else None
    more = {"count": query.count, "freshness": fresh, "text_decorations": "false"}
    return _got("/res/v1/web/search", {"X-Subscription-Token": key}, q=query.text, **more)


def _tavily(query: SearchQuery, key: str) -> SearchRequest:
    more = {"max_results": query.count, "time_range": query.recency}
    return _posted("/search", {"Authorization": f"Bearer {key}"}, query=query.text, **more)


def _exa(query: SearchQuery, key: str) -> SearchRequest:
    since = None
    if query.recency is not None:
        begin = dt.datetime.fromtimestamp(query.now, dt.UTC) - dt.timedelta(days=_DAYS[query.recency])
        since = begin.strftime("%Y-%m-%dT%H:%M:%S.000Z")
    more = {"startPublishedDate": since, "contents": {"highlights": {"maxCharacters": MAX_EXCERPT}}}
    return _posted("/search", {"x-api-key": key}, query=query.text, numResults=query.count, **more)


SEARCH_SERVICES: Mapping[str, SearchService] = {
    "searxng": SearchService(
        name="SearXNG", request=_searxng, excerpts=("content",), dates=("publishedDate", "pubdate")
    ),
    "brave": SearchService(
        name="Brave Search",
        url="https://api.search.brave.com",
        key_env="BRAVE_API_KEY",
        key_page="api-dashboard.search.brave.com/app/keys",
        request=_brave,
        rows=("web", "results"),
        excerpts=("description",),
        dates=("page_age", "age"),
        escaped=True,
    ),
    "tavily": SearchService(
        name="Tavily",
        url="https://api.tavily.com",
        key_env="TAVILY_API_KEY",
        key_page="app.tavily.com",
        request=_tavily,
        excerpts=("content",),
        dates=("published_date",),
    ),
    "exa": SearchService(
        name="Exa",
        url="https://api.exa.ai",
        key_env="EXA_API_KEY",
        key_page="dashboard.exa.ai/api-keys",
        request=_exa,
        excerpts=("highlights", "text"),
        dates=("publishedDate",),
    ),
}
