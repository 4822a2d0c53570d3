"""What calls to models used and cost."""

import datetime as dt
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

import attrs

from klaw.convert import Bounds
from klaw.domain.text import plural
from klaw.domain.usage import FIELDS, UsageSum, dollars
from klaw.operations import stored
from klaw.operations.handler import Caller, DatabaseParts, Parts
from klaw.operations.lines import Lines, Table
from klaw.operations.operation import Nothing, Noun, Scope, Slash, UserName, argument

if TYPE_CHECKING:
    from klaw.llm.budget import BudgetReport

NOUN = Noun("usage", "show what calls to models used and cost (docs/usage.md)")
SHOWN_MODELS = 5
_NO_KEY = {"chat": "(tasks)", "task": "(chats)"}
"""What stands for usage that belongs to no chat, or to no task."""


@attrs.frozen(kw_only=True)
class UsageArguments:
    days: Annotated[int, Bounds(1, 3_660)] = argument(
        "so many UTC days, today included (default: 30)", default=30, metavar="N"
    )
    by: Literal["chat", "model", "day", "task", "source"] = argument(
        "sums for each of these (default: day)", default="day"
    )
    user: UserName | None = argument("of this user only (default: all users)", metavar="NAME")


@attrs.frozen(kw_only=True)
class Spending(UsageSum):
    cost_usd: float


@attrs.frozen(kw_only=True)
class SpendingOf(Spending):
    """``title``: what people call a source, where they are asked for by source."""

    key: str | None
    title: str | None


_SOURCES: Mapping[str | None, str] = {
    "turn": "answers in chats", "run": "runs of tasks", "summary": "summaries", "titles": "titles",
    "topics": "making topics", "facts": "learning facts", "reranker": "choosing what is recalled",
    "embedding": "vectors of messages and questions",
}  # fmt: skip


class UsageAnswer(TypedDict):
    since: str
    days: int
    user: str | None
    by: str
    groups: list[SpendingOf]
    total: Spending
    budget: "BudgetReport | None"


def _lines(answer: dict[str, Any]) -> Lines:
    whose, total = f" of {answer['user']}" if answer["user"] else "", answer["total"]
    head = f"usage{whose} since {answer['since']} (UTC), {plural(answer['days'], 'day')}"
    if not total["calls"]:
        return [f"{head}: nothing", *_budget(answer["budget"])]
    rows = [[answer["by"], "calls", "tokens in", "cached", "tokens out", "cost"]]
    rows += [_row(each["key"] or _NO_KEY.get(answer["by"], "-"), each) for each in answer["groups"]]
    table = Table([*rows, _row("total", total)], right=frozenset({1, 2, 3, 4}))
    notes = []
    if total["unpriced_calls"]:
        calls, tokens = plural(total["unpriced_calls"], "call"), plural(total["unpriced_tokens"], "token")
        notes.append(f"of unknown price: {calls} with {tokens}")
    if total["estimated_calls"]:
        calls = plural(total["estimated_calls"], "call is", "calls are")
        notes.append(f"{calls} estimated: stopped, or not counted by the provider")
    return [head, table, *notes, *_budget(answer["budget"])]


def _row(name: str, each: dict[str, Any]) -> list[str]:
    counts = (each["calls"], each["prompt_tokens"], each["cached_tokens"], each["completion_tokens"])
    return [name, *(f"{count:,}" for count in counts), cost_of(each)]


def cost_of(each: Mapping[str, Any]) -> str:
    """What calls cost, for people. ``each`` has all ``FIELDS``."""
    spent = UsageSum(**{name: each[name] for name in FIELDS})
    if not spent.unpriced_calls:
        return dollars(spent.cost_nano)
    return "price unknown" if spent.unpriced_calls >= spent.calls else f"{dollars(spent.cost_nano)} + unknown"


def spent_text(each: Mapping[str, Any]) -> str:
    """What calls used and cost, for people. ``each`` has all ``FIELDS``."""
    if not each["calls"]:
        return "nothing"
    cached = f" ({each['cached_tokens']:,} cached)" if each["cached_tokens"] else ""
    guessed = ", partly estimated" if each["estimated_calls"] else ""
    tokens = f"{each['prompt_tokens']:,} tokens in{cached}, {each['completion_tokens']:,} out{guessed}"
    return f"{plural(each['calls'], 'call')}, {tokens}, {cost_of(each)}"


def _budget(budget: dict[str, Any] | None) -> list[str]:
    return [f"today: {budget_text(budget)}"] if budget is not None and budget["share"] is not None else []


def budget_text(budget: dict[str, Any]) -> str:
    parts = []
    if budget["limit_nano"] is not None:
        parts.append(f"{dollars(budget['spent_nano'])} of {dollars(budget['limit_nano'])}")
    if budget["limit_tokens"] is not None:
        parts.append(f"{budget['unpriced_tokens']:,} of {budget['limit_tokens']:,} tokens of unknown price")
    refused = f", {budget['refused']:,} requests refused" if budget["refused"] else ""
    return f"{' and '.join(parts)} used{refused}"


def _in_chat(answer: dict[str, Any]) -> Lines:
    models = answer["models"] if len(answer["models"]) > 1 else []
    more = len(models) - SHOWN_MODELS
    return [
        f"This chat: {spent_text(answer['chat'])}.",
        f"Today (UTC), all your chats and tasks: {spent_text(answer['today'])}.",
        f"Last {answer['days']} days: {spent_text(answer['lately'])}.",
        *(f"  {each['key']}: {spent_text(each)}." for each in models[:SHOWN_MODELS]),
        *([f"  and {more} more; `klaw usage --by model` lists them"] if more > 0 else []),
        *([answer["budget"]] if answer["budget"] else []),
    ]


def spent_json(spent: UsageSum, **more: str | None) -> Any:
    return {**attrs.asdict(spent), "cost_usd": spent.cost_usd, **more}


@NOUN.operation("usage", UsageArguments, cli="", show=_lines, offline=True)
async def usage(asked: UsageArguments, caller: Caller, parts: DatabaseParts) -> UsageAnswer:
    """Show tokens and cost by day, chat, model, task or source."""
    today = dt.datetime.fromtimestamp(parts.clock.now(), dt.UTC).date()
    since = (today - dt.timedelta(days=asked.days - 1)).isoformat()
    user = None if caller.everybody and asked.user is None else caller.user
    total, groups = await parts.readers.run(
        stored.usage.both, stored.usage.UsageFilters(since=since, user=user), asked.by
    )
    titles: Mapping[str | None, str] = _SOURCES if asked.by == "source" else {}
    return {
        "since": since,
        "days": asked.days,
        "user": user,
        "by": asked.by,
        "groups": [spent_json(group.spent, key=group.key, title=titles.get(group.key)) for group in groups],
        "total": spent_json(total),
        # It sums up what all users spent.
        "budget": parts.budget.report() if parts.budget is not None and caller.operator else None,
    }


_SLASH = Slash(word="/usage", help="show what this chat used and what it cost")


@NOUN.operation("chat_usage", Nothing, show=_in_chat, scope=Scope.CHAT, slash=_SLASH)
async def chat_usage(_asked: Nothing, caller: Caller, parts: Parts) -> dict[str, Any]:
    """Show what the chat where this is asked has used, and its user."""
    budget = parts.llm.budget
    used, problems = await parts.readers.run(stored.usage.of_chat, caller.here, budget.today()), budget.problems()
    return {
        "chat": spent_json(used.chat),
        "today": spent_json(used.today),
        "lately": spent_json(used.lately),
        "days": stored.usage.DAYS,
        "models": [spent_json(group.spent, key=group.key) for group in used.models],
        "budget": problems.get("budget_used_up") or problems.get("budget_low"),
    }
