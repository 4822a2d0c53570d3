"""One-shot reply cell: how an actor answers one request.

The requester creates it, carries it inside a message, and waits. Whoever resolves it first wins; later attempts are
ignored. The requester's own cancel scope is the deadline.
"""

from typing import Generic, TypeVar

import trio

T = TypeVar("T")


class Reply(Generic[T]):
    """A cell that is resolved once, with a value or with an error."""

    __slots__ = ("_error", "_event", "_value")

    def __init__(self) -> None:
        self._event = trio.Event()
        self._value: T | None = None
        self._error: Exception | None = None

    @property
    def resolved(self) -> bool:
        return self._event.is_set()

    def set(self, value: T) -> bool:
        """Resolve with a value. Returns False when the cell was resolved before."""
        if self._event.is_set():
            return False
        self._value = value
        self._event.set()
        return True

    def fail(self, error: Exception) -> bool:
        """Resolve with an error that ``wait`` raises. Returns False when the cell was resolved before."""
        if self._event.is_set():
            return False
        self._error = error
        self._event.set()
        return True

    async def wait(self) -> T:
        """Wait for the value.

        Raises:
            Exception: the error given to ``fail``.

        Cancellation: the request itself is not withdrawn; its outcome is unknown to the caller.
        """
        await self._event.wait()
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]  # set() stored a T before the event fired
