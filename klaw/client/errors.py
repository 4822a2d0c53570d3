"""What can go wrong for a client, one class for each situation that a caller can tell apart."""

from klaw.errors import KlawError


class ServerUnreachable(KlawError):
    """No connection to the server could be made for as long as the client was told to try."""


class ServerRefused(KlawError):
    """The server will not talk to this client (token, protocol version, origin); trying again cannot help."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class RequestRefused(KlawError):
    """The server answered one frame with an error; the connection lives on."""

    def __init__(self, code: str, message: str, *, retryable: bool = False, retry_after_ms: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.retryable = retryable
        self.retry_after_ms = retry_after_ms


class ConnectionLost(KlawError):
    """The connection broke before a request was answered. Messages are sent again by themselves; requests are not."""


class ClientClosed(KlawError):
    """The client was closed by its owner."""
