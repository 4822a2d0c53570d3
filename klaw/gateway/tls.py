"""HTTPS and wss on the gateway's port, with certificate files that may be renewed while the server runs.

What is behind it speaks through a pair of sockets, as if a proxy had unwrapped the connection: a WebSocket's link sends
without waiting, which a TLS stream cannot.
"""

import datetime as dt
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Never, TypeAlias

import structlog
import trio

from klaw.actor.clock import Clock
from klaw.actor.threads import Threads
from klaw.config.schema import TlsConfig
from klaw.errors import ConfigError, HttpRefusal
from klaw.gateway.handshake import LINGER_S, linger, respond

LOOK_S = 10.0
"""Files are looked at this often."""
SEND_S = 15.0
"""What is still to be sent when the server has closed must be taken within this time."""
WARN_S = 7 * 86_400.0
_HANDSHAKE = b"\x16"
"""How a TLS connection begins (RFC 8446, 5.1)."""

Behind: TypeAlias = Callable[[trio.SocketStream, socket.socket], Awaitable[None]]

log = structlog.get_logger("klaw.gateway")


class Certificate:
    """The certificate of the configured files. A newer one is taken up if it is good; else the last good one stays."""

    def __init__(self, config: TlsConfig, clock: Clock) -> None:
        assert config.cert_file is not None
        assert config.key_file is not None  # checked by the configuration
        self._files, self._clock = (config.cert_file, config.key_file), clock
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._seen: object = None
        self._ends_at = 0.0
        self._problem: str | None = None
        self._threads = Threads("certificate", 1)

    async def load(self) -> None:
        """Raises ConfigError: with these files nobody could connect."""
        await self._threads.run(self._load)

    async def stay_fresh(self) -> Never:
        while True:
            await trio.sleep(LOOK_S)
            try:
                if await self._threads.run(self._load):
                    log.info("certificate_loaded")
                self._problem = None
            except ConfigError as error:
                problem = f"the certificate in effect is older than its files: {error}"
                if self._problem != problem:
                    log.warning("certificate_not_loaded", reason=str(error))
                self._problem = problem

    def problems(self) -> Mapping[str, str]:
        text, ends = self._problem, dt.datetime.fromtimestamp(self._ends_at, dt.UTC)
        if text is None and self._clock.now() > self._ends_at - WARN_S:
            text = f"{self._files[0]}: the certificate ends at {ends:%Y-%m-%d %H:%M} UTC; put a renewed one there"
        return {} if text is None else {"certificate": text}

    async def serve(self, stream: trio.SocketStream, within_s: float, behind: Behind) -> None:
        """Shake hands within a time, then serve what was unwrapped with ``behind``, which gets a stream and the socket
        below it. A client that speaks plain HTTP is told so. The caller closes the stream."""
        tls = None
        with trio.move_on_after(within_s), suppress(OSError, trio.BrokenResourceError):
            first = await stream.socket.recv(1, socket.MSG_PEEK)
            if first and first != _HANDSHAKE:
                await respond(stream, HttpRefusal(400, "this port speaks HTTPS: ask https://, or wss:// of /ws"))
                return
            shaking = trio.SSLStream(stream, self._context, server_side=True, https_compatible=True)
            await shaking.do_handshake()
            tls = shaking
        if tls is not None:
            await _unwrapped(tls, behind)

    def _load(self) -> bool:
        """Whether the files are others than the last time; then they are in effect. Raises ConfigError. Blocks."""
        seen: object = None
        with suppress(OSError):
            seen = [(at.st_ino, at.st_size, at.st_mtime_ns, at.st_ctime_ns) for at in map(Path.stat, self._files)]
            if seen == self._seen:
                return False
        self._context, self._ends_at = read(*self._files)
        self._seen = seen
        return True


def read(cert_file: Path, key_file: Path) -> tuple[ssl.SSLContext, float]:
    """A context with a certificate, and when that ends, in Unix seconds. Raises ConfigError. Blocks."""
    from cryptography import x509  # only who has a certificate pays for it

    for file, name, holds in ((cert_file, "certFile", "CERTIFICATE"), (key_file, "keyFile", "PRIVATE KEY")):
        try:
            text = file.read_text("ascii", "replace")
        except OSError as error:
            raise _wrong(name, file, f"{error.strerror}; the user that Klaw runs as must be able to read it") from None
        if f"{holds}-----" not in text:
            raise _wrong(name, file, f"it has no {holds} in PEM form; `openssl x509` and `openssl pkey` convert it")

    def refuse() -> str:
        raise _wrong("keyFile", key_file, f"it has a password; `openssl pkey -in {key_file} -out FILE` takes it off")

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2  # Debian's Python leaves it to the system
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(cert_file, key_file, refuse)
        certificate = x509.load_pem_x509_certificate(cert_file.read_bytes())
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or "damaged"
        why = f"it is not the key of {cert_file}, or one of them is damaged ({reason}); give two that belong together"
        raise _wrong("keyFile", key_file, why) from None
    return context, certificate.not_valid_after_utc.timestamp()


def _wrong(name: str, file: Path, why: str) -> ConfigError:
    return ConfigError.of(f"{file}: {why}", f"gateway.tls.{name}")


async def _unwrapped(tls: trio.SSLStream[trio.SocketStream], behind: Behind) -> None:
    """Serve with ``behind`` while two tasks carry what comes and goes between it and a TLS stream."""
    pair = socket.socketpair()
    near, far = (trio.SocketStream(trio.socket.from_stdlib_socket(each)) for each in pair)

    async def receive() -> None:
        with suppress(trio.BrokenResourceError):
            with suppress(trio.BrokenResourceError):  # a reset: what is behind sees an end
                async for part in tls:
                    await near.send_all(part)
            await near.send_eof()

    async def carry() -> None:
        async with trio.open_nursery() as receiving:
            receiving.start_soon(receive, name="gateway TLS receiver")
            with suppress(trio.BrokenResourceError):
                async for part in near:
                    await tls.send_all(part)
            receiving.cancel_scope.cancel(reason="the server has closed the connection")
        with trio.move_on_after(LINGER_S):
            try:
                await tls.unwrap()
            except trio.BrokenResourceError:  # the peer is gone, or still sends what nobody wants
                await linger(tls.transport_stream)
        near.socket.close()

    with near.socket, far.socket:
        async with trio.open_nursery() as carrying:
            carrying.start_soon(carry, name="gateway TLS carrier")
            await behind(far, pair[1])
            far.socket.close()
            carrying.cancel_scope.deadline = trio.current_time() + SEND_S
