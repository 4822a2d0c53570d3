"""TLS on the gateway's port: what certificates are taken, how a connection begins and ends, and renewals."""

import os
import ssl
import time
from contextlib import asynccontextmanager, suppress
from functools import partial

import pytest
import trio

from klaw.config.schema import TlsConfig
from klaw.errors import ConfigError
from klaw.gateway import tls
from klaw.gateway.tls import Certificate
from tests.support.certificates import write_certificate
from tests.support.clock import TrioClock
from tests.support.waiting import HANG_S, until


def no_key(cert, key):
    key.unlink()
    return "gateway.tls.keyFile", "No such file"


def no_certificate(cert, key):
    cert.write_bytes(key.read_bytes())
    return "gateway.tls.certFile", "no CERTIFICATE"


def key_of_another(cert, key):
    write_certificate(cert.with_name("other"), key)
    return "gateway.tls.keyFile", "not the key of"


def with_password(cert, key):
    write_certificate(cert, key, password=b"secret")
    return "gateway.tls.keyFile", "it has a password"


def damaged(cert, key):
    cert.write_text(cert.read_text().replace("M", "N", 20))
    return "gateway.tls.keyFile", "damaged"


def closed(cert, key):
    if os.geteuid() == 0:
        pytest.skip("root may read every file")
    key.chmod(0)
    return "gateway.tls.keyFile", "Permission denied"


@pytest.fixture
def files(tmp_path):
    pair = tmp_path / "klaw.crt", tmp_path / "klaw.key"
    write_certificate(*pair)
    return pair


@pytest.mark.parametrize("spoil", [no_key, no_certificate, key_of_another, with_password, damaged, closed])
def test_wrong_files_are_named(files, spoil):
    field, reason = spoil(*files)
    with pytest.raises(ConfigError) as raised:
        tls.read(*files)
    ((problem),) = raised.value.problems
    assert problem.path == field
    assert reason in problem.message
    assert str(files[0].parent) in problem.message
    assert "secret" not in str(raised.value)


def test_older_protocols_are_refused(files):
    assert tls.read(*files)[0].minimum_version is ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize("days", [3, 60, 365 * 40])
async def test_end_of_a_certificate_is_told_in_time(files, days):
    write_certificate(*files, days=days)
    certificate = Certificate(TlsConfig(cert_file=files[0], key_file=files[1]), TrioClock(time.time()))
    await certificate.load()
    assert bool(certificate.problems()) is (days == 3)


class Served:
    """A certificate behind which an echo listens."""

    def __init__(self, files, within_s):
        self.config = TlsConfig(cert_file=files[0], key_file=files[1])
        self.certificate = Certificate(self.config, TrioClock(time.time()))
        self._within_s = within_s
        self.dialled = []

    async def start(self, nursery):
        await self.certificate.load()
        nursery.start_soon(self.certificate.stay_fresh)
        (listener,) = await nursery.start(partial(trio.serve_tcp, self._serve, 0, host="127.0.0.1"))
        self.port = listener.socket.getsockname()[1]

    async def _serve(self, stream):
        await self.certificate.serve(stream, self._within_s, self._echo)
        await stream.aclose()

    async def _echo(self, stream, below):
        assert below.fileno() == stream.socket.fileno()
        async for part in stream:
            await stream.send_all(part)

    async def dial(self):
        self.dialled.append(await trio.open_tcp_stream("127.0.0.1", self.port))
        return self.dialled[-1]

    async def connect(self, trusted):
        context = ssl.create_default_context(cafile=trusted)
        stream = trio.SSLStream(await self.dial(), context, server_hostname="localhost")
        await stream.do_handshake()
        return stream


@asynccontextmanager
async def listening(files, within_s=HANG_S):
    served = Served(files, within_s)
    async with trio.open_nursery() as nursery:
        await served.start(nursery)
        yield served
        for stream in served.dialled:
            await trio.aclose_forcefully(stream)
        nursery.cancel_scope.cancel()


async def test_what_was_said_comes_whole_and_the_end_is_told(files):
    """Each end is a ``close_notify``: without https_compatible, trio takes nothing else."""
    said = os.urandom(1 << 20)
    async with listening(files) as served:
        stream = await served.connect(files[0])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream.send_all, said)
            heard = b""
            while len(heard) < len(said):
                heard += await stream.receive_some()
        assert heard == said
        assert (await stream.unwrap())[1] == b""


async def test_plain_http_is_told_that_this_is_https(files):
    async with listening(files) as served:
        stream = await served.dial()
        await stream.send_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = b"".join([part async for part in stream])
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b"https://" in answer


@pytest.mark.parametrize("said", [b"", b"\x16", b"\x16\x03\x01\x00\x05hello"])
async def test_a_handshake_that_does_not_end_is_ended(files, said):
    async with listening(files, within_s=0.05) as served:
        stream = await served.dial()
        await stream.send_all(said)
        with suppress(trio.BrokenResourceError):
            assert await stream.receive_some() == b""


async def test_a_renewed_certificate_is_taken_up_and_a_broken_one_is_not(files, monkeypatch):
    monkeypatch.setattr(tls, "LOOK_S", 0.01)
    former = files[0].with_name("former")
    former.write_bytes(files[0].read_bytes())
    async with listening(files) as served:
        stays = await served.connect(former)
        files[0].write_text("broken")
        problems = await until(served.certificate.problems)
        assert "no CERTIFICATE" in problems["certificate"]
        await served.connect(former)
        write_certificate(*files, name="renewed")
        await until(lambda: not served.certificate.problems())
        await served.connect(files[0])
        with pytest.raises(trio.BrokenResourceError):
            await served.connect(former)
        await stays.send_all(b"still here")
        assert await stays.receive_some() == b"still here"
