"""Processes without their imports: each is forked from one that has them (``programs/zygote.py``). They are processes
like others, with a pid, signals and an exit code, but children of that one."""

import json
import os
import signal
import socket
import subprocess
import sys
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from multiprocessing.connection import wait

import trio

from tests.support.programs.zygote import NUMBER_BYTES
from tests.support.repository import REPOSITORY


class Fork:
    """What tests use of a ``trio.Process``; without streams."""

    def __init__(self, told: int) -> None:
        """Args: told: a pipe that tells two numbers, its pid and in the end its exit code; owned."""
        weakref.finalize(self, os.close, told)
        self._told = told
        self.pid = self._number()
        self._returncode: int | None = None
        self._waiting = trio.Lock()

    def _number(self) -> int:
        told = os.read(self._told, NUMBER_BYTES)
        assert told, "the zygote has ended"
        return int(told)

    @property
    def returncode(self) -> int | None:
        """As of ``subprocess``; None while it runs."""
        if self._returncode is None and wait([self._told], 0):
            self._returncode = self._number()
        return self._returncode

    async def wait(self) -> int:
        async with self._waiting:
            while (code := self.returncode) is None:
                await trio.lowlevel.wait_readable(self._told)
        return code

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Zygote:
    """The process that is forked, started with the first fork."""

    def __init__(self) -> None:
        self._socket, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    @cached_property
    def _process(self) -> subprocess.Popen[bytes]:
        theirs = self._theirs
        command = [sys.executable, "-m", "tests.support.programs.zygote", str(theirs.fileno())]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}  # neither files nor a terminal
        with theirs:
            return subprocess.Popen(command, cwd=REPOSITORY, pass_fds=[theirs.fileno()], **pipes)

    def fork(self, command: Sequence[str], streams: Sequence[int], environ: Mapping[str, str]) -> Fork:
        """Run a command in the repository.

        Args:
            command: of Python: ``-m klaw`` or ``-c SCRIPT``, and arguments.
            streams: descriptors of standard input, output and error.
        """
        assert self._process.poll() is None, "the zygote has ended"
        request = {"command": command, "environ": dict(environ), "cwd": str(REPOSITORY)}
        told, telling = os.pipe()
        with os.fdopen(telling), os.fdopen(os.memfd_create("request"), "w") as file:
            json.dump(request, file)
            file.flush()
            socket.send_fds(self._socket, [b"fork"], [*streams, telling, file.fileno()])
        return Fork(told)

    def close(self) -> None:
        """End it, and the forks that are left."""
        self._socket.close()
        self._theirs.close()
        if "_process" in self.__dict__:
            with self._process:
                pass
