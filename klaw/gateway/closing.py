"""Why and how the server closes a connection: close codes of the protocol."""

import enum


class Close(enum.Enum):
    """A reason to close: WebSocket close code, reason text, and whether queued frames are sent before."""

    SHUTDOWN = (1001, "shutdown", True)
    BINARY_FRAME = (1003, "binary frame", True)
    FRAME_TOO_LARGE = (1009, "frame too large", True)
    FAILED = (1011, "internal error", True)
    TOO_SLOW = (4008, "too slow", False)
    UNRESPONSIVE = (4009, "unresponsive", False)
    HELLO_FIRST = (4400, "hello first", True)
    UNAUTHORIZED = (4401, "unauthorized", True)
    WRONG_VERSION = (4406, "wrong protocol version", True)
    HELLO_TIMEOUT = (4408, "no hello", True)
    TOO_MANY = (4429, "too many connections", True)

    def __init__(self, code: int, reason: str, polite: bool) -> None:
        self.code = code
        self.reason = reason
        self.polite = polite
