"""The command ``/usage``: what a chat and its user have used, in words."""

from klaw.domain.names import ChatId
from klaw.domain.usage import Spent, dollars
from klaw.llm.budget import Budget
from klaw.store.readers import Readers
from klaw.store.sql import usage
from klaw.store.sql.usage import DAYS, ChatUsage

SHOWN_MODELS = 5


async def tell_usage(readers: Readers, budget: Budget, chat: ChatId) -> str:
    """The answer to ``/usage``."""
    used = await readers.run(usage.of_chat, chat, budget.today())
    report = budget.report()
    return usage_text(used, None if report.share is None else budget.used_text(report))


def usage_text(used: ChatUsage, budget: str | None) -> str:
    """Word it. ``budget``: how the daily limit stands, if there is one."""
    lines = [
        f"This chat: {spent_text(used.chat)}",
        f"Today (UTC), all your chats and tasks: {spent_text(used.today)}",
        f"Last {DAYS} days: {spent_text(used.lately)}",
    ]
    if len(used.models) > 1:
        lines += [f"  {group.key}: {spent_text(group.spent)}" for group in used.models[:SHOWN_MODELS]]
        more = len(used.models) - SHOWN_MODELS
        lines += [f"  and {more} more; `klaw usage --by model` lists them"] if more > 0 else []
    return "\n".join([*lines, *([budget] if budget else [])])


def spent_text(spent: Spent) -> str:
    """Tokens and cost in one line."""
    if not spent.calls:
        return "nothing."
    cached = f" ({spent.cached_tokens:,} cached)" if spent.cached_tokens else ""
    calls = "1 call" if spent.calls == 1 else f"{spent.calls:,} calls"
    estimated = f"; {spent.estimated_calls:,} estimated" if spent.estimated_calls else ""
    return (
        f"{cost_text(spent)}; {spent.prompt_tokens:,} tokens in{cached}, {spent.completion_tokens:,} out;"
        f" {calls}{estimated}."
    )


def cost_text(spent: Spent) -> str:
    """What it cost, and of how many calls that is not known."""
    if not spent.unpriced_calls:
        return dollars(spent.cost_nano)
    if spent.unpriced_calls >= spent.calls:
        return "price unknown"
    return f"{dollars(spent.cost_nano)} and {spent.unpriced_calls:,} calls of unknown price"
