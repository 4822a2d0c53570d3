"""Tasks that belong together: the first that ends, ends all."""

from collections.abc import Awaitable, Callable

import trio


async def run_until_first_ends(*tasks: Callable[[], Awaitable[None]]) -> None:
    """Run tasks side by side; when one returns or raises, the others are cancelled.

    Raises:
        Exception: what that task raised, as itself; errors of the others while they were cancelled are lost.

    Cancellation: cancels them all.
    """
    errors: list[Exception] = []

    async def run(task: Callable[[], Awaitable[None]], scope: trio.CancelScope) -> None:
        try:
            await task()
        except Exception as exc:  # noqa: BLE001  raised below: a nursery would wrap it in a group
            errors.append(exc)
        scope.cancel(reason="another of these tasks has ended")

    async with trio.open_nursery() as nursery:
        for task in tasks:
            nursery.start_soon(run, task, nursery.cancel_scope)
    if errors:
        raise errors[0]
