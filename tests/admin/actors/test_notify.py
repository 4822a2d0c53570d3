"""What systemd is told, over real datagram sockets, and the watchdog with checks that fail."""

import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from klaw.actor.clock import SystemClock
from klaw.actor.supervisor import Supervisor
from klaw.admin import notify
from klaw.admin.notify import Notifier, Prove, accepts, watchdog_interval_s
from klaw.app.app import App
from klaw.app.serve import _tell
from klaw.errors import ActorStopped
from klaw.store.rebuild.values import Progress
from tests.support.waiting import HANG_S

INTERVAL_S = 30.0


class Systemd:
    """The receiving end."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self.socket.setblocking(False)
        self.notifier = Notifier(address)

    def told(self) -> list[str]:
        """What has arrived since the last time."""
        messages = []
        while True:
            try:
                messages.append(self.socket.recv(4096).decode())
            except BlockingIOError:
                return messages


@pytest.fixture
def systemd(home: Path) -> Any:
    receiver = Systemd(str(home / "notify"))
    yield receiver
    receiver.socket.close()


def test_notifications(systemd: Systemd) -> None:
    notifier = systemd.notifier
    assert all([notifier.send("READY=1", "STATUS=listening on\n127.0.0.1"), notifier.send("WATCHDOG=1")])
    assert systemd.told() == ["READY=1\nSTATUS=listening on 127.0.0.1", "WATCHDOG=1"]


def test_a_long_start_asks_for_more_time_and_says_how_far_it_is(systemd: Systemd) -> None:
    _tell(systemd.notifier, Progress("messages", 450, 1000))
    assert systemd.told() == ["EXTEND_TIMEOUT_USEC=120000000\nSTATUS=making klaw.db from the logs: messages, 45 %"]


def test_abstract_address() -> None:
    receiver = Systemd(f"@klaw-test-{os.getpid()}")
    try:
        assert receiver.notifier.send("READY=1")
        assert receiver.told() == ["READY=1"]
    finally:
        receiver.socket.close()


def test_without_systemd_nothing_happens() -> None:
    for address in (None, ""):
        notifier = Notifier(address)
        assert not notifier.send("READY=1")


def test_a_deaf_systemd_neither_blocks_nor_raises(systemd: Systemd, home: Path) -> None:
    """Its queue is full, or it is gone."""
    notifier = systemd.notifier
    assert not all(notifier.send("WATCHDOG=1") for _ in range(10_000))
    assert not Notifier(str(home / "nobody")).send("READY=1")
    assert not Notifier("vsock:2:1234").send("READY=1")


@pytest.mark.parametrize(
    ("environ", "interval"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "60000000"}, 30.0),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": str(os.getpid())}, 30.0),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_watchdog_interval(environ: dict[str, str], interval: float | None) -> None:
    assert watchdog_interval_s(environ) == interval


class Part:
    """A part whose state the test decides."""

    def __init__(self) -> None:
        self.prove: Callable[[], Any] = trio.lowlevel.checkpoint

    def check(self, name: str) -> tuple[str, Prove]:
        async def prove() -> None:
            await self.prove()

        return name, prove


@asynccontextmanager
async def watching(notifier: Notifier, *checks: tuple[str, Prove]) -> AsyncIterator[Supervisor]:
    async with trio.open_nursery() as nursery:
        supervisor = Supervisor(nursery, SystemClock())
        await supervisor.start(notify.spec(notifier, INTERVAL_S, dict(checks)))
        yield supervisor
        await supervisor.stop(notify.ACTOR_NAME, "the test is over")


async def test_the_watchdog_is_fed_while_all_checks_pass(
    systemd: Systemd, autojump_clock: trio.testing.MockClock
) -> None:
    async with watching(systemd.notifier, Part().check("writer"), Part().check("listener")) as supervisor:
        await trio.sleep(3.5 * INTERVAL_S)
        assert systemd.told() == ["WATCHDOG=1"] * 4
        assert supervisor.report()[0].activity == "feeding"


async def refuse() -> None:
    raise ConnectionRefusedError


@pytest.mark.parametrize("broken", [trio.sleep_forever, refuse])
async def test_a_part_without_a_sign_of_life_starves_it(
    systemd: Systemd,
    autojump_clock: trio.testing.MockClock,
    log_events: list[dict[str, Any]],
    broken: Callable[[], Any],
) -> None:
    """It is fed again as soon as the part lives, well within systemd's patience of two intervals."""
    writer = Part()
    async with watching(systemd.notifier, writer.check("writer"), Part().check("listener")) as supervisor:
        await trio.sleep(1)
        assert systemd.told() == ["WATCHDOG=1"]
        writer.prove = broken
        await trio.sleep(3 * INTERVAL_S)
        assert systemd.told() == []
        assert supervisor.report()[0].activity == "not feeding: writer"
        assert {event["reason"] for event in log_events if event["event"] == "watchdog_not_fed"} == {"writer"}
        writer.prove = trio.lowlevel.checkpoint
        await trio.sleep(INTERVAL_S / 2)
        assert systemd.told() == ["WATCHDOG=1"]


async def test_the_writer_proves_its_life_by_a_transaction(app: App) -> None:
    await app.core.writer.ping()
    await app.core.supervisor.stop("store.writer", "the test")
    with pytest.raises(ActorStopped):
        await app.core.writer.ping()


async def test_the_listener_proves_its_life_by_accepting() -> None:
    """A listener that no longer accepts fails, though the kernel still completes the connect."""
    with trio.fail_after(HANG_S):
        async with trio.open_nursery() as nursery:
            (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
            port = listener.socket.getsockname()[1]
            prove = partial(accepts, lambda: ("0.0.0.0", port))
            with trio.move_on_after(0.1) as stuck:
                await prove()
            assert stuck.cancelled_caught

            async def hang_up(stream: trio.SocketStream) -> None:
                await stream.aclose()

            nursery.start_soon(trio.serve_listeners, hang_up, [listener])
            await prove()
            nursery.cancel_scope.cancel(reason="the listener stops")
        with pytest.raises(OSError, match="connect"):
            await prove()
        with pytest.raises(ConnectionRefusedError):
            await accepts(lambda: None)
