"""``klaw serve``: the running parts with their listeners, systemd's notifications, and signals.

SIGTERM and SIGINT stop in stages; a second one ends the process at once. Nothing acknowledged is lost either way.
"""

import gc
import linecache
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from functools import cached_property, partial
from typing import Any

import attrs
import structlog
import trio

from klaw import __version__, health
from klaw.actor import process
from klaw.actor.threads import Threads
from klaw.admin import notify
from klaw.admin import socket as admin_socket
from klaw.admin.notify import Notifier
from klaw.api.server import HttpServer
from klaw.app.app import App, recover_chats, running
from klaw.config.paths import Paths
from klaw.config.schema import EngineConfig
from klaw.gateway.listener import Gateway
from klaw.gateway.services import Services
from klaw.gateway.tokens import Authenticator, tokens_file
from klaw.operations.handler import Listeners, Parts
from klaw.operations.perform import perform
from klaw.store.rebuild.values import Progress

EXTEND_S = 120
"""How long systemd waits for the next sign of a long start; it gets one every few seconds."""
GC_THRESHOLD = 20_000
"""New objects between two collections of the young ones; Python's own 700 is meant for small heaps."""
GC_OLDER = 5
"""Collections of the younger ones between two of the older: what hypercorn leaves of a connection refers to itself."""

SWITCH_S = 0.0005
"""A busy thread keeps the interpreter this long from another that wants it. Each statement of the writer gives it up:
with Python's own 5 ms, storing a message takes 0.1 s while the event loop is busy."""

log = structlog.get_logger("klaw.serve")


async def serve(
    config: EngineConfig, paths: Paths, *, on_ready: Callable[[str], None], fsync: Callable[[int], None] = os.fsync
) -> None:
    """Run the server until a signal stops it. ``on_ready`` gets the WebSocket address once everything listens.

    Raises StorageError, ConfigError: it cannot start; ExceptionGroup: one of them, or a vital actor failed."""
    process.use_one_arena()
    sys.setswitchinterval(SWITCH_S)
    auth = Authenticator(tokens_file(paths.config_dir))
    notifier = Notifier(os.environ.get("NOTIFY_SOCKET"))
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        # Outside of ``running``: the second signal must also be heard while its parts stop, which may take a minute.
        async with trio.open_nursery() as watching:
            async with running(config, paths, fsync=fsync, report=partial(_tell, notifier)) as app:
                listener = _Listener(app, auth)
                await _serve(app, listener, notifier, signals, on_ready)
                watching.start_soon(_exit_at_second_signal, signals)
                await _stop_listeners(app, listener)
            watching.cancel_scope.cancel(reason="all has stopped")


def _tell(notifier: Notifier, step: Progress) -> None:
    """Tell systemd that the start goes on, and how far it is."""
    text = f"making klaw.db from the logs: {step.phase}, {step.percent} %"
    notifier.send(f"EXTEND_TIMEOUT_USEC={EXTEND_S * 1_000_000}", f"STATUS={text}")


async def _serve(
    app: App, listener: "_Listener", notifier: Notifier, signals: AsyncIterator[int], on_ready: Callable[[str], None]
) -> None:
    async with trio.open_nursery() as nursery:
        await app.core.supervisor.start(listener.gateway.spec())
        await _start_admin(app, listener)
        await _start_watchdog(app, listener, notifier)
        await app.core.supervisor.start(health.Notices(app.core, listener.auth.owners).spec())
        nursery.start_soon(recover_chats, app)
        settle_garbage_collector()
        on_ready(listener.url)
        notifier.send("READY=1", f"STATUS=listening on {listener.url}")
        log.info("ready", version=__version__, pid=os.getpid())
        await _wait_for_signal(signals)
        notifier.send("STOPPING=1")
        nursery.cancel_scope.cancel(reason="shutdown")


async def _stop_listeners(app: App, listener: "_Listener") -> None:
    """No new connections and no new questions; what runs goes on in the stages of ``running``."""
    for name in (health.NOTICES, notify.ACTOR_NAME, admin_socket.ACTOR_NAME, listener.gateway.mailbox.name):
        await app.core.supervisor.stop(name, "shutdown")


class _Listener:
    def __init__(self, app: App, auth: Authenticator) -> None:
        self.address: tuple[str, int] | None = None
        self.http = HttpServer(self._make_api)
        services = Services(
            config=app.core.config.gateway,
            chats=app.chats,
            hub=app.hub,
            auth=auth,
            approvals=app.tools.approvals,
            attachments=app.core.attachments,
            clock=app.core.clock,
            perform=lambda call, caller: perform(call, caller, self.parts),
            http=self.http if app.core.config.gateway.http.enabled else None,
        )
        self._app, self._services, self.auth = app, services, auth
        self.gateway = Gateway(services, self._listening)

    def _make_api(self) -> Any:
        from klaw.api.app import make_app
        from klaw.api.request_auth import Api

        return make_app(Api(core=self._app.core, services=self._services, parts=self.parts))

    @cached_property
    def parts(self) -> Parts:
        return with_listener(self._app, self)

    def _listening(self, host: str, port: int) -> None:
        self.address = (host, port)

    @property
    def url(self) -> str:
        host, port = self.address or ("", 0)
        return f"ws://[{host}]:{port}/ws" if ":" in host else f"ws://{host}:{port}/ws"


def with_listener(app: App, listener: _Listener) -> Parts:
    listeners = Listeners(
        connections=listener.gateway.connections,
        http_connections=listener.gateway.http_connections,
        address=lambda: listener.url,
        access=listener.auth,
        check_up=partial(_check_up, app.core.paths, Threads("check-up", 1)),
    )
    return attrs.evolve(app, listeners=listeners)


async def _check_up(
    paths: Paths, threads: Threads, status: Mapping[str, Any], health: Mapping[str, Any]
) -> dict[str, Any]:
    """What `klaw doctor` finds, given the server's status and health."""
    from klaw.doctor.checkup import check_up
    from klaw.doctor.places import Server

    look = partial(check_up, paths, Server(status=status, health=health), whole=False, version=__version__)
    return (await threads.run(look, abandon=True)).told()


async def _start_admin(app: App, listener: _Listener) -> None:
    await app.core.supervisor.start(admin_socket.spec(app.core.paths.admin_socket, listener.http.serve_operator))


async def _start_watchdog(app: App, listener: _Listener, notifier: Notifier) -> None:
    if (interval_s := notify.watchdog_interval_s()) is not None:
        checks = [
            notify.LifeCheck(name="writer", prove=app.core.writer.ping),
            notify.LifeCheck(name="gateway", prove=listener.gateway.ping),
            notify.LifeCheck(name="listener", prove=partial(notify.accepts, lambda: listener.address)),
        ]
        await app.core.supervisor.start(notify.spec(notifier, interval_s, checks))


def settle_garbage_collector() -> None:
    """Leave what lives as long as the process out of every later collection, and collect less often.

    Modules and actors are some hundred thousand objects; walking them again and again cost a fifth of the CPU of an
    acknowledgement and stopped the event loop meanwhile."""
    linecache.clearcache()  # attrs keeps the sources of the methods that it makes there: 2 MB
    gc.collect()
    process.give_back()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, GC_OLDER, GC_OLDER)


async def _wait_for_signal(signals: AsyncIterator[int]) -> None:
    async for number in signals:
        log.info("stopping", signal=signal.Signals(number).name)
        return


async def _exit_at_second_signal(signals: AsyncIterator[int]) -> None:
    """Ends the process at once: what was acknowledged is on the disk, what was not will be sent again."""
    async for number in signals:
        log.warning("stopping_at_once", signal=signal.Signals(number).name)
        os._exit(128 + number)
