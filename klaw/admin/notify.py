"""Telling systemd how the service is (``sd_notify``), and proving that it lives before the watchdog is fed. Without
``NOTIFY_SOCKET``, which only systemd sets, all this does nothing."""

import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TypeAlias

import structlog
import trio

from klaw.actor.failure import error_class
from klaw.actor.supervisor import ActorSpec, TaskStarted, Vitals

ACTOR_NAME = "systemd.watchdog"
CHECK_S = 5.0
"""A part that shows no sign of life for this long is stuck."""
RETRY_SHARE = 0.2
"""Pause after a failed check, as a share of the interval, so that a short jam does not kill."""

Prove: TypeAlias = Callable[[], Awaitable[None]]
"""Returns when a part lives; raises, or does not return, when it does not."""
log = structlog.get_logger("klaw.notify")


class Notifier:
    """Sends notifications to ``address``, systemd's datagram socket: a path, or ``@name`` for an abstract one; None or
    empty: nowhere."""

    def __init__(self, address: str | None) -> None:
        self._address = "\0" + address[1:] if address and address.startswith("@") else address

    def send(self, *assignments: str) -> bool:
        """Send assignments such as ``READY=1``. Never waits and never raises. Returns whether they were sent."""
        if not self._address:
            return False
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
                out.setblocking(False)
                out.sendto("\n".join(" ".join(each.split()) for each in assignments).encode(), self._address)
        except OSError as error:
            log.warning("notify_failed", error=error_class(error))
            return False
        return True


def watchdog_interval_s(environ: Mapping[str, str] = os.environ) -> float | None:
    """How often to feed the watchdog: half of what systemd allows; None when it expects nothing."""
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    try:
        allowed_us = int(environ.get("WATCHDOG_USEC", "0"))
    except ValueError:
        return None
    return allowed_us / 2_000_000 if allowed_us > 0 else None


async def accepts(address: Callable[[], tuple[str, int] | None]) -> None:
    """Prove that the listener, at ``address`` (None when it does not listen), accepts a connection: connect, end our
    side, and wait until the server ends its own. To connect alone proves nothing: the kernel does it for a process that
    never accepts."""
    place = address()
    if place is None:
        raise ConnectionRefusedError
    host, port = place
    stream = await trio.open_tcp_stream({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port)  # noqa: S104
    try:
        await stream.send_eof()
        await stream.receive_some(1)
    except trio.BrokenResourceError:
        pass  # reset by the server: it was accepted
    finally:
        await trio.aclose_forcefully(stream)


def spec(notifier: Notifier, interval_s: float, checks: Mapping[str, Prove]) -> ActorSpec:
    feed = partial(run, notifier=notifier, interval_s=interval_s, checks=checks)
    return ActorSpec(name=ACTOR_NAME, run=feed, stop_budget_s=1)


async def run(
    vitals: Vitals, task_status: TaskStarted, *, notifier: Notifier, interval_s: float, checks: Mapping[str, Prove]
) -> None:
    """Feed the watchdog every ``interval_s`` seconds while all checks pass, until cancelled. While one fails, nothing
    is sent, and systemd restarts the service when its patience ends."""
    task_status.started()
    while True:
        failed = [name for name, prove in checks.items() if not await _passes(name, prove)]
        if failed:
            vitals.doing(f"not feeding: {', '.join(failed)}")
            log.error("watchdog_not_fed", reason=",".join(failed))
            await trio.sleep(interval_s * RETRY_SHARE)
        else:
            vitals.doing("feeding")
            notifier.send("WATCHDOG=1")
            await trio.sleep(interval_s)


async def _passes(name: str, prove: Prove) -> bool:
    with trio.move_on_after(CHECK_S):
        try:
            await prove()
        except Exception as error:  # noqa: BLE001 - any failure is one thing: no proof of life
            log.warning("watchdog_check_failed", name=name, error=error_class(error))
        else:
            return True
    return False
