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

_STATUS = {
    "forbidden": 403,
    "not_allowed": 403,
    "base_exists": 409,
    "several_bases": 409,
    "id_conflict": 409,
    "bad_offset": 409,
    "same_person": 409,
    "fact_exists": 409,
    "person_exists": 409,
    "task_exists": 409,
    "run_over": 409,
    "cannot_undo": 409,
    "ambiguous_id": 409,
    "ambiguous_run": 409,
    "several_people": 409,
    "too_many_chats": 409,
    "too_much_today": 429,
    "file_too_large": 413,
    "files_too_large": 413,
    "files_full": 507,
    "storage_full": 507,
    "busy": 503,
    "unavailable": 503,
    "not_started": 503,
    "no_database": 503,
    "storage": 503,
    "too_slow": 504,
    "internal": 500,
    "nothing_to_forget": 404,
}
"""By the code of an error; what is unknown is 404, the rest 400."""

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
    """The HTTP status of an error's code."""
    if code.startswith("llm_") or code in ("context_too_long", "turn_failed"):
        return MODEL_FAILED
    return _STATUS.get(code, 404 if code.startswith("unknown_") else 400)


def of_error(error: Exception) -> JSONResponse:
    """The problem that an exception means; what is not expected is logged (class and place only) and ``internal``."""
    match error:
        case HttpRefusal(status=status, headers=headers):
            more = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
            return problem(status, _code(status), str(error), headers={**headers, **more})
        case HTTPException(status_code=status, detail=detail):
            return problem(status, _code(status), detail, headers=error.headers)
    told = refusal_of(error)
    wait = {"Retry-After": str(told.wait_s)} if told.wait_s is not None else None
    return problem(status_of(told.code), told.code, told.text, told.problems, wait)


def _code(status: int) -> str:
    return HTTPStatus(status).phrase.lower().replace(" ", "_").replace("'", "")
