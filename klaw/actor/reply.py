"""One-shot reply cell: how an actor answers one request.

The requester creates it, carries it inside a message, and waits, or is called. Whoever resolves it first wins; later
attempts are ignored. The requester's own cancel scope is the deadline.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

import trio

T = TypeVar("T")


class Reply(Generic[T]):
    """A cell that is resolved once, with a value or with an error."""

    __slots__ = ("_error", "_event", "_then", "_value", "resolved")

    def __init__(self) -> None:
        self.resolved = False
        self._then: Callable[[Reply[T]], None] | None = None
        self._event: trio.Event | None = None
        """Made by the first who waits."""
        self._value: T | None = None
        self._error: Exception | None = None

    def set(self, value: T) -> bool:
        """Resolve with a value. Returns False when the cell was resolved before."""
        return self._resolve(value, None)

    def fail(self, error: Exception) -> bool:
        """Resolve with an error that ``get`` and ``wait`` raise. Returns False when the cell was resolved before."""
        return self._resolve(None, error)

    def then(self, call: "Callable[[Reply[T]], None]") -> "Reply[T]":
        """Have one function called with the cell when it is resolved, by whoever resolves it: it neither waits nor
        raises. For requesters that need no task to wait in."""
        self._then = call
        if self.resolved:
            call(self)
        return self

    def get(self) -> T:
        """The value of a resolved cell. Raises the error given to ``fail``."""
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]  # set() stored a T before it was resolved

    async def wait(self) -> T:
        """Wait for the value.

        Raises:
            Exception: the error given to ``fail``.

        Cancellation: the request itself is not withdrawn; its outcome is unknown to the caller.
        """
        if self._event is None:
            self._event = trio.Event()
            if self.resolved:
                self._event.set()
        await self._event.wait()
        return self.get()

    def _resolve(self, value: T | None, error: Exception | None) -> bool:
        if self.resolved:
            return False
        self.resolved, self._value, self._error = True, value, error
        if self._event is not None:
            self._event.set()
        if self._then is not None:
            self._then(self)
        return True
