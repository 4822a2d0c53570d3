"""The gateway actor: it listens, accepts, and owns all connections. It is vital, and stops when its mailbox is closed;
an error of one connection concerns that one only."""

import errno
import itertools
import math
import os
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
import structlog
import trio

from klaw.actor.failure import error_class, where
from klaw.actor.mailbox import Mailbox, Reply
from klaw.actor.supervisor import ActorSpec, TaskStarted, Vitals
from klaw.config.schema import EngineConfig, GatewayConfig
from klaw.errors import CannotListen, ConfigError, HttpRefusal
from klaw.gateway.connection_limits import Admission, Arrival, Connection, TokenBucket, address_of
from klaw.gateway.handshake import respond, serve_stream
from klaw.gateway.origin_check import Endpoints, is_loopback
from klaw.gateway.services import Services
from klaw.gateway.session import ClientSession
from klaw.gateway.tls import Certificate

STOP_S = 5.0
"""How long sessions get to say goodbye."""
FULL_PAUSE_S = 0.2
"""Pause when the process has no file descriptor or memory left for a connection."""
LOG_FLOOD_S = 10.0
"""Connections that are closed because too many come are logged at most this often."""
MAX_REFUSALS = 16
"""Connections over the limit that are told so at a time; the rest is closed without a word."""
AT_ONCE = 32
_BROKEN_OFF = (errno.ECONNABORTED, errno.EPROTO, errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EPERM)
"""The connection is gone again, or a firewall forbids it (accept(2))."""
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS)

log = structlog.get_logger("klaw.gateway")


@attrs.frozen(kw_only=True)
class Ping:
    reply: Reply[None]


class Gateway:
    """The handle and the actor. ``on_listening`` is told host and port once it listens."""

    def __init__(self, services: Services, on_listening: Callable[[str, int], None]) -> None:
        self.mailbox: Mailbox[Ping] = Mailbox("gateway", 16)  # filled by the watchdog; full means it hangs
        self._services, self._on_listening = services, on_listening
        self._sessions: dict[str, ClientSession] = {}
        self._http: set[str] = set()
        self._numbers = itertools.count(1)
        self._arriving: set[trio.CancelScope] = set()
        """Connections without a session yet; a stop does not wait for them."""
        self._admission = Admission(services.config)
        tls = services.config.tls
        self.certificate = Certificate(tls, services.clock) if tls.cert_file else None
        self._refusing = 0
        self._port: int | None = None
        self._closed_unheard = 0
        self._logged_at = -math.inf

    def spec(self) -> ActorSpec:
        return ActorSpec(name="gateway", run=self.run, mailbox=self.mailbox, vital=True, stop_budget_s=STOP_S + 2.0)

    def connections(self) -> list[dict[str, Any]]:
        return [session.report() for session in self._sessions.values()]

    def http_connections(self) -> int:
        return len(self._http)

    async def ping(self) -> None:
        await self.mailbox.ask(lambda reply: Ping(reply=reply))

    async def run(self, vitals: Vitals, started: TaskStarted) -> None:
        """Listen until the mailbox is closed, then say goodbye to every client in bounded time.

        Raises CannotListen: the address is taken or not there; ConfigError: it must not listen there without a token,
        or with this certificate.
        """
        if self.certificate is not None:
            await self.certificate.load()
        listeners = await self._listen()
        async with trio.open_nursery() as connections:
            async with trio.open_nursery() as accepting:
                for listener in listeners:
                    accepting.start_soon(self._accept, listener, connections, name="gateway accept")
                if self.certificate is not None:
                    accepting.start_soon(self.certificate.stay_fresh, name="gateway certificate")
                host, port = listeners[0].socket.getsockname()[:2]
                log.info("listening", address=host, port=port)
                self._port = port
                self._on_listening(host, port)
                started.started()
                vitals.doing("listening")
                async for ping in self.mailbox:
                    ping.reply.set(None)
                accepting.cancel_scope.cancel(reason="shutdown")
            vitals.doing("closing connections")
            for arriving in self._arriving:
                arriving.cancel(reason="shutdown")
            for session in list(self._sessions.values()):
                session.shut_down()
            if self._services.http is not None:
                await self._services.http.close()
            connections.cancel_scope.deadline = trio.current_time() + STOP_S

    async def check(self, settings: EngineConfig) -> None:
        """Refuse a changed address or certificate with which it could not listen after a restart. Raises
        ConfigError."""
        new, now = settings.gateway, self._services.config
        if new.tls.cert_file is not None and new.tls != now.tls:
            await Certificate(new.tls, self._services.clock).load()
        if (new.host, new.port) != (now.host, now.port):
            self._check_token(new)
            try:
                port = 0 if new.port in (now.port, self._port) else new.port
                for listener in await trio.open_tcp_listeners(port, host=new.host):
                    listener.socket.close()
            except OSError as error:
                key = "gateway.port" if error.errno in (errno.EADDRINUSE, errno.EACCES) else "gateway.host"
                why = f"cannot listen on {new.host}, port {new.port}: {error.strerror or error_class(error)}"
                raise ConfigError.of(why, key) from error

    def _check_token(self, config: GatewayConfig) -> None:
        if not is_loopback(config.host) and not self._services.auth.has_tokens:
            todo = "make a token with 'klaw token add USER', or listen on 127.0.0.1"
            raise ConfigError.of(f"{config.host} can be reached from other machines: {todo}", "gateway.host")

    async def _listen(self) -> list[trio.SocketListener]:
        config = self._services.config
        self._check_token(config)
        try:
            listeners = await trio.open_tcp_listeners(config.port, host=config.host)
        except OSError as error:
            reason = error.strerror or error_class(error)
            if error.errno == errno.EADDRINUSE:
                reason += "; another program listens there, perhaps another Klaw: stop it, or use another --port"
            raise CannotListen(f"gateway.port: cannot listen on {config.host}, port {config.port}: {reason}") from error
        if config.port == 0:
            for spare in listeners[1:]:  # each address of a name has a port of its own; only one is told
                spare.socket.close()
            del listeners[1:]
        return listeners

    async def _accept(self, listener: trio.SocketListener, connections: trio.Nursery) -> None:
        """Accept until cancelled, all that wait at once: in a flood, a newcomer does not wait a turn of the event loop
        for each one before it."""
        with listener.socket, socket.socket(fileno=os.dup(listener.socket.fileno())) as listening:
            listening.setblocking(False)
            while True:
                await trio.lowlevel.wait_readable(listening)
                try:
                    for _ in range(AT_ONCE):
                        connection, address = listening.accept()
                        self._receive(connection, str(address[0]), connections)
                except BlockingIOError:
                    continue
                except OSError as error:
                    if error.errno in _BROKEN_OFF:
                        continue
                    if error.errno not in _EXHAUSTED:
                        raise
                    log.error("accept_failed", error=error_class(error), code=errno.errorcode[error.errno])
                    await trio.sleep(FULL_PAUSE_S)

    def _receive(self, connection: socket.socket, peer: str, connections: trio.Nursery) -> None:
        """Give a new connection its place; one that gets none costs no task."""
        try:
            local = str(connection.getsockname()[0])
        except OSError:
            connection.close()  # gone already
            return
        config, now = self._services.config, trio.current_time()
        session_id, arriving = f"c{next(self._numbers)}", trio.CancelScope()
        made = Connection(
            id=session_id,
            address=address_of(peer),
            place=Endpoints.of(config, peer=peer, local=local),
            drop=arriving.cancel,
            has_unread=partial(_has_unread, connection),
            log_in=lambda user: self._admission.log_in(session_id, user, trio.current_time()),
            pace=TokenBucket.per_second(config.http.requests_per_second, now),
            encrypted=self.certificate is not None,
            arrived_at=now,
        )
        refused = self._admission.arrive(made, now)
        if refused is Arrival.TOO_FAST or (refused is Arrival.TURN_AWAY and self._refusing >= MAX_REFUSALS):
            self._count_closed()
            connection.close()
            return
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(connection))
        if refused is None:
            self._arriving.add(arriving)
            connections.start_soon(self._connection, stream, connection, made, arriving, name="gateway connection")
        else:
            self._refusing += 1
            connections.start_soon(self._turn_away, stream, name="gateway refusal")

    async def _connection(
        self, stream: trio.SocketStream, raw: socket.socket, connection: Connection, arriving: trio.CancelScope
    ) -> None:
        """Serve one connection; no error leaves this."""
        structlog.contextvars.bind_contextvars(connection=connection.id)

        def keep(session: ClientSession | None) -> None:
            self._arriving.discard(arriving)
            if session is not None:
                self._sessions[connection.id] = session
            else:
                self._http.add(connection.id)

        async def serve(plain: trio.SocketStream, below: socket.socket) -> None:
            connection.has_unread = partial(_has_unread, below)
            await serve_stream(plain, below, connection, self._services, keep)

        try:
            with arriving:
                await trio.sleep(connection.wait_s)
                connection.wait_s = 0.0
                if self.certificate is None:
                    await serve(stream, raw)
                else:
                    await self.certificate.serve(stream, self._services.config.hello_timeout_s, serve)
        except* Exception as failures:  # noqa: BLE001  an error of one connection concerns nobody else
            log.error("connection_failed", error=error_class(failures), where=where(failures))
        finally:
            self._arriving.discard(arriving)
            self._admission.leave(connection.id)
            self._sessions.pop(connection.id, None)
            self._http.discard(connection.id)
            stream.socket.close()

    def _count_closed(self) -> None:
        self._closed_unheard += 1
        if trio.current_time() - self._logged_at >= LOG_FLOOD_S:
            log.warning("connections_too_fast", count=self._closed_unheard)
            self._logged_at, self._closed_unheard = trio.current_time(), 0

    async def _turn_away(self, stream: trio.SocketStream) -> None:
        try:
            await respond(stream, HttpRefusal(503, "too many connections; try again later", {"Retry-After": "1"}), 1.0)
        finally:
            self._refusing -= 1
            stream.socket.close()


def _has_unread(connection: socket.socket) -> bool:
    """Whether bytes have come that nobody has read yet, or the end."""
    try:
        connection.recv(1, socket.MSG_PEEK)
    except OSError as error:
        return error.errno not in (errno.EAGAIN, errno.EBADF)
    return True
