"""``usage``: what calls to models used and cost. The server and the command without one both answer by these functions.
Pure."""

import datetime as dt
from collections.abc import Sequence
from typing import Any

import attrs

from klaw.admin.answers import check_user
from klaw.admin.requests import Usage
from klaw.domain.usage import Spent
from klaw.llm.budget import BudgetReport
from klaw.store.sql.usage import Group, UsageFilters

DEFAULT_DAYS = 30


def check_usage(request: Usage, now: float) -> UsageFilters:
    """What is to be counted. ``now``: Unix seconds.

    Raises:
        BadRequest: the user's name breaks its rule.
    """
    today = dt.datetime.fromtimestamp(now, dt.UTC).date()
    since = today - dt.timedelta(days=(request.days or DEFAULT_DAYS) - 1)
    user = check_user(request.user) if request.user is not None else None
    return UsageFilters(since=since.isoformat(), user=user)


def describe_usage(
    request: Usage, filters: UsageFilters, total: Spent, groups: Sequence[Group], budget: BudgetReport | None
) -> dict[str, Any]:
    """The answer as plain JSON values. ``budget`` None: no server runs."""
    return {
        "since": filters.since,
        "days": request.days or DEFAULT_DAYS,
        "user": filters.user,
        "by": request.by or "day",
        "groups": [{"key": group.key, **_spent(group.spent)} for group in groups],
        "total": _spent(total),
        "budget": describe_budget(budget) if budget is not None else None,
    }


def describe_budget(report: BudgetReport) -> dict[str, Any]:
    """The daily limits and how much of them is used."""
    return {**attrs.asdict(report), "share": round(report.share, 4) if report.share is not None else None}


def _spent(spent: Spent) -> dict[str, Any]:
    return {**attrs.asdict(spent), "cost_usd": spent.cost_usd}
