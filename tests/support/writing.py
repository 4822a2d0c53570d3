"""Standing between a requester and the writer, and writing what only older versions wrote."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from klaw.domain.names import UserId
from klaw.store.engine.transaction import Transaction
from klaw.store.engine.writer import Writer
from klaw.store.kinds.usage import DAY, DrawnDay

Real = Callable[..., Awaitable[Any]]


def instead(writer: Writer, function: Callable[..., Any], replacement: Callable[..., Awaitable[Any]]) -> None:
    """Have ``replacement(real, *args, **kwargs)`` called when the writer is asked to run a function.

    Args:
        writer: the store's.
        function: that is asked for.
        replacement: its first argument asks the writer for it.
    """
    for name in ("run", "run_alone"):
        setattr(writer, name, _instead(getattr(writer, name), function, replacement))


def _instead(run: Real, function: Callable[..., Any], replacement: Callable[..., Awaitable[Any]]) -> Real:
    async def asked(wanted: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if wanted is not function:
            return await run(wanted, *args, **kwargs)

        async def real(*args: Any, **kwargs: Any) -> Any:
            return await run(wanted, *args, **kwargs)

        return await replacement(real, *args, **kwargs)

    return asked


def note_day(tx: Transaction, user: UserId, day: str, messages: Sequence[int], at: str, *, done: bool) -> None:
    """Remember that messages of a day were drawn into facts, as the daily pass of older versions did."""
    tx.journal(DAY.put(user, day, DrawnDay(messages=tuple(messages), done=done), at))
