"""How much may come, and how fast. No I/O: the time is an argument.

A connection is read by the frames on the wire: pings and pieces of messages never reach a session, each of them costs
the library as much as a small message, and 600 fit into what it reads at once.
"""


class TokenBucket:
    """Holds up to ``burst`` tokens and gains ``rate`` a second.

    Args:
        rate: tokens a second.
        burst: tokens at the start and at most.
        now: seconds of any clock that only goes forward.
    """

    def __init__(self, rate: float, burst: int, now: float) -> None:
        self._rate = rate
        self._burst = float(burst)
        self._tokens = self._burst
        self._filled_at = now

    def take(self, now: float, count: float = 1.0) -> float:
        """Take so many tokens, of more than ``burst`` all that fit. Returns 0, or how many seconds to wait for them;
        then nothing was taken."""
        count = min(count, self._burst)
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now
        if self._tokens >= count:
            self._tokens -= count
            return 0.0
        return (count - self._tokens) / self._rate


SHARE = 2.0
"""So many frames on the wire for each message that a connection may send."""


class FramePace:
    """Counts the frames in what a client sends, and says when to read on.

    Args:
        rate: frames a second.
        burst: frames at once.
        now: seconds of any clock that only goes forward.
    """

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._left = burst
        self._at = now
        self._head = b""
        """The begin of a frame's head whose rest has not come."""
        self._skip = 0
        """Bytes of the last frame that have not come."""

    def wait_s(self, data: bytes | bytearray, now: float) -> float:
        """Take what was read; returns how many seconds to wait before the next reading."""
        self._left = min(self._burst, self._left + (now - self._at) * self._rate) - self._count(bytes(data))
        self._at = now
        return max(0.0, -self._left / self._rate)

    def _count(self, data: bytes) -> int:
        """Heads of frames that end in it (RFC 6455, 5.2)."""
        data, place, count = self._head + data, self._skip, 0
        while place + 2 <= len(data):
            second = data[place + 1]
            wide = {126: 2, 127: 8}.get(second & 0x7F, 0)
            end = place + 2 + wide + (4 if second & 0x80 else 0)
            if end > len(data):
                break
            place = end + (int.from_bytes(data[place + 2 : place + 2 + wide], "big") if wide else second & 0x7F)
            count += 1
        self._head, self._skip = data[place:], max(0, place - len(data))
        return count
