"""Strict imitations of search services: each refuses what the real one refuses, in its words and with its status."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.support.llm_server import Recorded, Reply
from tests.support.services.imitation import Handler, ServiceImitation, json_reply

KEY = "search-key-canary-0001"
FOUND = (
    ("Lighthouse of Riga", "https://riga.example/light", "The lighthouse of Riga was built in 1818."),
    ("Маяк в Риге", "https://riga.example/mayak", "Маяк в Риге построен в 1818 году."),
)
"""Title, address, excerpt."""


class SearchImitation(ServiceImitation):
    """``found``: what every search finds, at most as many as were asked for. ``asked_for``: queries that were taken."""

    kind = ""
    path = "/search"
    method = "POST"
    members: frozenset[str] = frozenset()

    def __init__(self, found: Any = FOUND, *, key: str = KEY) -> None:
        super().__init__(key=key)
        self.found = list(found)
        self.asked_for: list[str] = []

    def handlers(self) -> Mapping[tuple[str, str], Handler]:
        return {(self.method, self.path): self._checked}

    def unknown(self, _request: Recorded) -> Reply:
        return json_reply({"error": "Not Found"}, 404)

    def _given(self, request: Recorded) -> dict[str, Any]:
        return dict(request.body)

    def _checked(self, request: Recorded) -> Reply:
        given = self._given(request)
        wrong = next((f"Unknown parameter: {each}" for each in given if each not in self.members), None)
        wrong = wrong or self.mistake(given)
        if wrong is not None:
            return self.refused(wrong)
        self.asked_for.append(str(given.get("query", given.get("q"))))
        return json_reply(self.results(self.found[: self.count(given)], given))

    def mistake(self, given: Mapping[str, Any]) -> str | None:
        raise NotImplementedError

    def refused(self, wrong: str) -> Reply:
        raise NotImplementedError

    def count(self, given: Mapping[str, Any]) -> int:
        raise NotImplementedError

    def results(self, found: Any, given: Mapping[str, Any]) -> Any:
        raise NotImplementedError


class BraveSearch(SearchImitation):
    kind = "brave"
    path = "/res/v1/web/search"
    method = "GET"
    members = frozenset(
        {"q", "count", "offset", "freshness", "text_decorations", "safesearch", "country", "search_lang"}
    )

    def given_key(self, request: Recorded) -> str | None:
        return request.headers.get("x-subscription-token")

    def wrong_key(self, request: Recorded) -> Reply:
        text = f"The provided subscription token {self.given_key(request)} is invalid."
        return json_reply(_brave_error(422, "SUBSCRIPTION_TOKEN_INVALID", text), 422)

    def _given(self, request: Recorded) -> dict[str, Any]:
        return dict(parse_qsl(urlsplit(request.path).query))

    def mistake(self, given: Mapping[str, Any]) -> str | None:
        if not 1 <= len(given["q"]) <= 400 or len(given["q"].split()) > 50:
            return "q: at most 400 characters and 50 words"
        if not 1 <= int(given.get("count", 20)) <= 20:
            return "count: Input should be less than or equal to 20"
        return None if given.get("freshness", "pd") in ("pd", "pw", "pm", "py") else "freshness: Invalid"

    def refused(self, wrong: str) -> Reply:
        return json_reply(_brave_error(422, "VALIDATION", f"Unable to validate request parameter(s): {wrong}"), 422)

    def count(self, given: Mapping[str, Any]) -> int:
        return int(given.get("count", 20))

    def results(self, found: Any, given: Mapping[str, Any]) -> Any:
        rows = [
            {"title": title.replace("'", "&#x27;"), "url": url, "description": text, "age": "2 days ago"}
            for title, url, text in found
        ]
        rows[:1] = [{**each, "page_age": "2026-03-01T10:00:00"} for each in rows[:1]]
        answer = {"type": "search", "query": {"original": given["q"]}}
        return {**answer, "web": {"type": "search", "results": rows}} if rows else answer


def _brave_error(status: int, code: str, detail: str) -> Any:
    return {"type": "ErrorResponse", "error": {"id": "1", "status": status, "code": code, "detail": detail}, "time": 1}


class TavilySearch(SearchImitation):
    kind = "tavily"
    members = frozenset({"query", "max_results", "time_range", "search_depth", "topic", "include_answer"})

    def wrong_key(self, _request: Recorded) -> Reply:
        return json_reply({"detail": {"error": "Unauthorized: missing or invalid API key."}}, 401)

    def mistake(self, given: Mapping[str, Any]) -> str | None:
        if not 1 <= len(given["query"]) <= 400:
            return "Query is too long. Max query length is 400 characters."
        if given.get("time_range") not in (None, "day", "week", "month", "year"):
            return "Invalid time range."
        return None if 0 <= given.get("max_results", 5) <= 20 else "Max results must be between 0 and 20."

    def refused(self, wrong: str) -> Reply:
        return json_reply({"detail": {"error": wrong}}, 400)

    def count(self, given: Mapping[str, Any]) -> int:
        return int(given.get("max_results", 5))

    def results(self, found: Any, given: Mapping[str, Any]) -> Any:
        rows = [
            {"title": title, "url": url, "content": text, "score": 0.9, "raw_content": None, "published_date": date}
            for (title, url, text), date in zip(found, ("Sun, 01 Mar 2026 10:00:00 GMT", *[None] * 20), strict=False)
        ]
        return {"query": given["query"], "answer": None, "images": [], "results": rows, "response_time": 0.1}


class ExaSearch(SearchImitation):
    kind = "exa"
    members = frozenset({"query", "numResults", "type", "contents", "startPublishedDate", "endPublishedDate"})

    def given_key(self, request: Recorded) -> str | None:
        return request.headers.get("x-api-key")

    def wrong_key(self, _request: Recorded) -> Reply:
        return json_reply({"requestId": "1", "error": "Invalid API key", "tag": "INVALID_API_KEY"}, 401)

    def mistake(self, given: Mapping[str, Any]) -> str | None:
        contents = given.get("contents", {})
        if not set(contents) <= {"text", "highlights", "summary"}:
            return "contents: Unrecognized key"
        if not set(contents.get("highlights", {})) <= {"query", "maxCharacters"}:
            return "contents.highlights: Unrecognized key"
        since = given.get("startPublishedDate", "2026-01-01T00:00:00.000Z")
        if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", since):
            return "startPublishedDate: Invalid ISO datetime"
        return None if 1 <= given.get("numResults", 10) <= 100 else "numResults: must be at most 100"

    def refused(self, wrong: str) -> Reply:
        return json_reply({"requestId": "1", "error": f"Validation error: {wrong}", "tag": "INVALID_REQUEST_BODY"}, 400)

    def count(self, given: Mapping[str, Any]) -> int:
        return int(given.get("numResults", 10))

    def results(self, found: Any, given: Mapping[str, Any]) -> Any:
        rows = [
            {"id": url, "title": title, "url": url, "publishedDate": date, "author": "", "highlights": [text]}
            for (title, url, text), date in zip(found, ("2026-03-01T10:00:00.000Z", *[None] * 20), strict=False)
        ]
        return {"requestId": "1", "results": rows, "costDollars": {"total": 0.005}}


SEARCH_IMITATIONS = {each.kind: each for each in (BraveSearch, TavilySearch, ExaSearch)}
