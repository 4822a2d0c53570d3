"""``klaw serve``: the running parts with their listeners, systemd's notifications, and signals.

SIGTERM and SIGINT stop in stages; a second one ends the process at once. Nothing acknowledged is lost either way."""

import gc
import linecache
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from functools import cached_property, partial
from typing import Any

import attrs
import structlog
import trio

from klaw import __version__, health
from klaw.actor import log as logging
from klaw.actor import process
from klaw.actor.threads import Threads
from klaw.admin import notify
from klaw.admin import socket as admin_socket
from klaw.admin.notify import Notifier
from klaw.api.server import HttpServer
from klaw.app.app import App, recover_chats, running
from klaw.channels.channels import Channels
from klaw.config.paths import Paths
from klaw.config.schema import EngineConfig
from klaw.core import Core
from klaw.errors import ConfigError
from klaw.gateway.listener import Gateway
from klaw.gateway.push import Pusher
from klaw.gateway.services import Services
from klaw.gateway.tokens import Authenticator, tokens_file
from klaw.operations.handler import Listeners, Parts
from klaw.operations.perform import perform
from klaw.settings import reload_settings
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
    config: EngineConfig,
    paths: Paths,
    *,
    on_ready: Callable[[str], None],
    fsync: Callable[[int], None] = os.fsync,
    fixed: frozenset[str] = frozenset(),
) -> None:
    """Run the server until a signal stops it. ``on_ready`` gets the WebSocket address once everything listens;
    ``fixed``: keys of the configuration that do not come from its file. Raises StorageError, ConfigError: it cannot
    start; ExceptionGroup: one of them, or a vital actor failed."""
    process.use_one_arena()
    sys.setswitchinterval(SWITCH_S)
    auth = Authenticator(tokens_file(paths.config_dir))
    notifier = Notifier(os.environ.get("NOTIFY_SOCKET"))
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        # Outside of ``running``: the second signal must also be heard while its parts stop, which may take a minute.
        async with trio.open_nursery() as watching:
            async with running(config, paths, fsync=fsync, report=partial(_tell, notifier)) as app:
                app.core.changing.fixed = fixed
                server = _Server(app, auth)
                await _serve(server, notifier, signals, on_ready)
                watching.start_soon(_exit_at_second_signal, signals)
                await server.stop()
            watching.cancel_scope.cancel(reason="all has stopped")


def _tell(notifier: Notifier, step: Progress) -> None:
    text = f"making klaw.db from the logs: {step.phase}, {step.percent} %"
    notifier.send(f"EXTEND_TIMEOUT_USEC={EXTEND_S * 1_000_000}", f"STATUS={text}")


async def _serve(
    server: "_Server", notifier: Notifier, signals: AsyncIterator[int], on_ready: Callable[[str], None]
) -> None:
    async with trio.open_nursery() as nursery:
        await server.start(notifier)
        nursery.start_soon(recover_chats, server.app)
        settle_garbage_collector()
        on_ready(server.url)
        notifier.send("READY=1", f"STATUS=listening on {server.url}")
        log.info("ready", version=__version__, pid=os.getpid())
        await _wait_for_signal(signals, server.app.core)
        notifier.send("STOPPING=1")
        nursery.cancel_scope.cancel(reason="shutdown")


class _Server:
    """The listeners of an app, and the address that the gateway found."""

    def __init__(self, app: App, auth: Authenticator) -> None:
        self.app, self._auth = app, auth
        self._address: tuple[str, int] | None = None
        self._http = HttpServer(self._make_api)
        self._push = Pusher(app.core, auth, app.hub)
        self._services = Services(
            config=app.core.live(lambda now: now.gateway),
            chats=app.chats,
            hub=app.hub,
            auth=auth,
            approvals=app.tools.approvals,
            attachments=app.core.attachments,
            clock=app.core.clock,
            perform=lambda call, caller: perform(call, caller, self._parts),
            push=self._push,
            http=self._http if app.core.config.gateway.http.enabled else None,
        )
        self.gateway = Gateway(self._services, self._listening)
        self._channels = Channels(
            core=app.core, hub=app.hub, chats=app.chats, approvals=app.tools.approvals, voice=app.voice
        )
        if self.gateway.certificate is not None:
            app.core.health.add(self.gateway.certificate.problems)
        app.core.changing.checks.append(self.gateway.check)
        app.core.changing.told.append(self._settings_changed)

    async def start(self, notifier: Notifier) -> None:
        core, gateway = self.app.core, self.gateway
        await core.supervisor.start(gateway.spec())
        await core.supervisor.start(admin_socket.spec(core.paths.admin_socket, self._http.serve_operator))
        if (interval_s := notify.watchdog_interval_s()) is not None:
            checks: dict[str, notify.Prove] = {"writer": core.writer.ping, "gateway": gateway.ping}
            checks["listener"] = partial(notify.accepts, lambda: self._address)
            await core.supervisor.start(notify.spec(notifier, interval_s, checks))
        await core.supervisor.start(health.Notices(core, self._auth.owners).spec())
        await self._push.start()
        await self._channels.start()

    async def stop(self) -> None:
        """No new connections and no new questions; what runs goes on in the stages of ``running``."""
        await self._channels.stop()
        names = (health.NOTICES, notify.ACTOR_NAME, admin_socket.ACTOR_NAME, self.gateway.mailbox.name)
        for name in (*names, self._push.mailbox.name):
            await self.app.core.supervisor.stop(name, "shutdown")

    async def _settings_changed(self, before: EngineConfig) -> None:
        level = self.app.core.config.logging.level
        if level != before.logging.level:  # else it may have been set by `klaw log`
            logging.set_level(level)

    def _make_api(self) -> Any:
        from klaw.api.app import make_app
        from klaw.api.request_auth import Api

        return make_app(Api(core=self.app.core, services=self._services, parts=self._parts))

    @cached_property
    def _parts(self) -> Parts:
        listeners = Listeners(
            connections=self.gateway.connections,
            http_connections=self.gateway.http_connections,
            address=lambda: self.url,
            tokens=self._auth.listed,
            add_token=self._auth.add,
            revoke=self._auth.revoke,
            make_code=self._auth.make_code,
            channels=self._channels,
            check_up=partial(_check_up, self.app.core.paths, Threads("check-up", 1)),
        )
        return attrs.evolve(self.app, listeners=listeners)

    def _listening(self, host: str, port: int) -> None:
        self._address = (host, port)

    @property
    def url(self) -> str:
        host, port = self._address or ("", 0)
        scheme = "ws" if self.gateway.certificate is None else "wss"
        return f"{scheme}://[{host}]:{port}/ws" if ":" in host else f"{scheme}://{host}:{port}/ws"


async def _check_up(
    paths: Paths, threads: Threads, status: Mapping[str, Any], health: Mapping[str, Any]
) -> dict[str, Any]:
    from klaw.doctor.checkup import check_up
    from klaw.doctor.places import Server

    look = partial(check_up, paths, Server(status=status, health=health), whole=False, version=__version__)
    return (await threads.run(look, abandon=True)).told()


def settle_garbage_collector() -> None:
    """Leave what lives as long as the process out of every later collection, and collect less often. Walking some
    hundred thousand objects again and again cost a fifth of the CPU of an acknowledgement."""
    linecache.clearcache()  # attrs keeps the sources of the methods that it makes there: 2 MB
    gc.collect()
    process.give_back()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, GC_OLDER, GC_OLDER)


async def _wait_for_signal(signals: AsyncIterator[int], core: Core) -> None:
    """Returns at the first signal that ends the process; at SIGHUP the configuration is read again."""
    async for number in signals:
        if number == signal.SIGHUP:
            with suppress(ConfigError):  # it was logged, and health shows it
                await reload_settings(core)
            continue
        log.info("stopping", signal=signal.Signals(number).name)
        return


async def _exit_at_second_signal(signals: AsyncIterator[int]) -> None:
    """Ends the process at once: what was acknowledged is on the disk, what was not will be sent again."""
    async for number in signals:
        if number == signal.SIGHUP:
            continue
        log.warning("stopping_at_once", signal=signal.Signals(number).name)
        os._exit(128 + number)
