"""What search services are asked, and what they answer: one dialect for each. Pure.

Whatever a service sends is data: each field becomes one printable line of bounded length."""

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from html import unescape
from typing import Any, Literal, TypeAlias

import attrs

from klaw.domain.text import clean_output, cut, one_line

Recency: TypeAlias = Literal["day", "week", "month", "year"]
MAX_QUERY = 400
"""Characters; Brave and Tavily refuse longer ones."""
MAX_TITLE, MAX_EXCERPT, MAX_DATE = 200, 700, 40
_DAYS = {"day": 1, "week": 7, "month": 31, "year": 366}
_JOINERS = "\u200c\u200d"


@attrs.frozen(kw_only=True)
class SearchQuery:
    text: str
    count: int
    recency: Recency | None = None
    now: float
    """Unix seconds: one dialect wants a date."""


@attrs.frozen(kw_only=True)
class WebResult:
    url: str
    """As the service gave it, unchecked."""
    title: str = ""
    date: str = ""
    excerpt: str = ""


@attrs.frozen(kw_only=True)
class SearchService:
    name: str
    path: str = "/search"
    asked: Callable[[SearchQuery], Mapping[str, Any]]
    """Parameters of a query; those that are None are left out."""
    posts: bool = True
    """They are sent as JSON, not in the address."""
    url: str = ""
    """Of its API; empty: the operator runs it, and it wants no key."""
    key_header: str = ""
    """Up to the key."""
    key_env: str = ""
    """The usual variable of its key; ``key_page``: where a person gets one."""
    key_page: str = ""
    results: tuple[str, ...] = ("results",)
    """Where the answer has its list of results."""
    excerpts: tuple[str, ...]
    """Their fields, as ``dates``: the first that is there counts."""
    dates: tuple[str, ...]
    escaped: bool = False
    """Its texts are HTML."""

    def read(self, answer: object, most: int) -> list[WebResult]:
        """Raises ValueError: it is not the answer to a search."""
        for name in self.results:
            # Brave leaves "web" out when it found nothing.
            answer = answer.get(name, {"results": []} if name == "web" else None) if isinstance(answer, dict) else None
        if isinstance(answer, list):
            return [*self._read(answer[:most])]
        raise ValueError("no list of results")

    def _read(self, rows: list[Any]) -> Iterator[WebResult]:
        for row in rows:
            if isinstance(row, dict) and isinstance(url := row.get("url"), str):
                title, excerpt = self._line(row, ("title",), MAX_TITLE), self._line(row, self.excerpts, MAX_EXCERPT)
                date = self._line(row, self.dates, MAX_DATE)
                date = date[:10] if date[4:5] == date[7:8] == "-" else date
                yield WebResult(url=url, title=title, date=date, excerpt=excerpt)

    def _line(self, row: Mapping[str, Any], names: tuple[str, ...], most: int) -> str:
        found = next((row[name] for name in names if row.get(name)), "")
        text = " … ".join(map(str, found[:5])) if isinstance(found, list) else found
        return line_of(unescape(text) if self.escaped and isinstance(text, str) else text, most)


def line_of(text: object, most: int) -> str:
    """A text from outside as one line of printable characters; empty for what is no text."""
    plain = one_line(clean_output(text[: 8 * most])) if isinstance(text, str) else ""
    return cut("".join(each for each in plain if each.isprintable() or each in _JOINERS), most)


def _exa(query: SearchQuery) -> Mapping[str, Any]:
    since = None
    if query.recency is not None:
        begin = dt.datetime.fromtimestamp(query.now, dt.UTC) - dt.timedelta(days=_DAYS[query.recency])
        since = begin.strftime("%Y-%m-%dT%H:%M:%S.000Z")
    highlights = {"maxCharacters": MAX_EXCERPT}
    more = {"startPublishedDate": since, "contents": {"highlights": highlights}}
    return {"query": query.text, "numResults": query.count, **more}


SEARCH_SERVICES: Mapping[str, SearchService] = {
    "searxng": SearchService(
        name="SearXNG",
        asked=lambda query: {"q": query.text, "format": "json", "time_range": query.recency},
        posts=False,
        excerpts=("content",),
        dates=("publishedDate", "pubdate"),
    ),
    "brave": SearchService(
        name="Brave Search",
        path="/res/v1/web/search",
        asked=lambda query: {
            "q": query.text,
            "count": query.count,
            "freshness": query.recency and f"p{query.recency[0]}",
            "text_decorations": "false",
        },
        posts=False,
        url="https://api.search.brave.com",
        key_header="X-Subscription-Token: ",
        key_env="BRAVE_API_KEY",
        key_page="api-dashboard.search.brave.com/app/keys",
        results=("web", "results"),
        excerpts=("description",),
        dates=("page_age", "age"),
        escaped=True,
    ),
    "tavily": SearchService(
        name="Tavily",
        asked=lambda query: {"query": query.text, "max_results": query.count, "time_range": query.recency},
        url="https://api.tavily.com",
        key_header="Authorization: Bearer ",
        key_env="TAVILY_API_KEY",
        key_page="app.tavily.com",
        excerpts=("content",),
        dates=("published_date",),
    ),
    "exa": SearchService(
        name="Exa",
        asked=_exa,
        url="https://api.exa.ai",
        key_header="x-api-key: ",
        key_env="EXA_API_KEY",
        key_page="dashboard.exa.ai/api-keys",
        excerpts=("highlights", "text"),
        dates=("publishedDate",),
    ),
}
