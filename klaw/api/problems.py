"""Errors as RFC 9457 problems (``application/problem+json``), with the fields that they are about. Texts are fixed or
those of operations, which never quote what was given.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import TypeAlias

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from klaw.errors import HttpRefusal, Problem
from klaw.gateway.answers import refusal_of

Handler: TypeAlias = Callable[[Request], Awaitable[Response]]

_CODES = {
    403: ("forbidden", "not_allowed"),
    404: ("nothing_to_forget",),
    409: (
        *("known_server", "no_login"),
        *("ambiguous_id", "ambiguous_run", "bad_offset", "base_exists", "cannot_undo", "fact_exists", "id_conflict"),
        *("person_exists", "run_over", "same_person", "several_bases", "several_people", "task_exists"),
        *("answer_running", "cannot_replace", "not_shown", "nothing_said", "too_many_chats"),
        *("no_voice", "not_a_sound", "nothing_heard", "nothing_to_say", "channel_exists", "channel_failed"),
    ),
    413: ("file_too_large", "files_too_large", "sound_too_large"),
    429: ("too_much_today",),
    500: ("internal",),
    503: ("busy", "no_database", "not_started", "storage", "unavailable"),
    504: ("too_slow",),
    507: ("files_full", "storage_full"),
}
"""Codes of errors by status; of the others, what is unknown is 404, the rest 400."""
_STATUS = {code: status for status, codes in _CODES.items() for code in codes}

MODEL_FAILED = 424
"""The message is stored, but the model gave no answer. No 5xx: programs would send it again by themselves."""


def problem(
    status: int, code: str, detail: str, problems: Sequence[Problem] = (), headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """A problem. ``errors`` holds the fields that are wrong."""
    body: dict[str, object] = {
        "type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "code": code, "detail": detail
    }  # fmt: skip
    if problems:
        body["errors"] = [{"field": each.path, "message": each.message} for each in problems]
    return JSONResponse(body, status, headers, "application/problem+json")


def status_of(code: str) -> int:
    if code.startswith("llm_") or code in ("context_too_long", "turn_failed"):
        return MODEL_FAILED
    return _STATUS.get(code, 404 if code.startswith("unknown_") else 400)


def of_error(error: Exception) -> JSONResponse:
    """The problem that an exception means; what is not expected is logged (class and place only) and ``internal``."""
    match error:
        case HttpRefusal(status=status, headers=headers):
            more = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
            return problem(status, _code(status), str(error), headers={**more, **headers})
        case HTTPException(status_code=status, detail=detail):
            return problem(status, _code(status), detail, headers=error.headers)
    told = refusal_of(error)
    wait = {"Retry-After": str(told.wait_s)} if told.wait_s is not None else None
    return problem(status_of(told.code), told.code, told.text, told.problems, wait)


def _code(status: int) -> str:
    return HTTPStatus(status).phrase.lower().replace(" ", "_").replace("'", "")
