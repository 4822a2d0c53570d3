"""A process that has imported all of Klaw, and forks itself for each command that ``tests/support/forks.py`` sends. It
has one thread and no event loop: a child begins like a process that was just started."""

import atexit
import gc
import json
import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import klaw

STREAMS = 3
NUMBER_BYTES = 16


def main() -> None:
    """Serve the socket whose descriptor is the first argument; in a child, return once it is to run its command."""
    for module in walk_packages(klaw.__path__, "klaw."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "a thread would be missing in the children"
    gc.collect()
    gc.freeze()  # the collector would copy what is shared with the children
    requests = socket.socket(fileno=int(sys.argv[1]))
    children: dict[int, tuple[int, int]] = {}  # pidfd: pid, where its end is told
    poll = select.poll()
    poll.register(requests, select.POLLIN)
    while True:
        for ready, _ in poll.poll():
            if ready == requests.fileno():
                _, descriptors, _, _ = socket.recv_fds(requests, 16, STREAMS + 2)
                if not descriptors:
                    for pid, _ in children.values():
                        os.kill(pid, signal.SIGKILL)
                    os._exit(0)
                *streams, told, request = descriptors
                pid = os.fork()
                if not pid:
                    requests.detach()
                    return _become(request, streams)
                for each in (*streams, request):
                    os.close(each)
                children[pidfd := os.pidfd_open(pid)] = (pid, told)
                poll.register(pidfd, select.POLLIN)
                _tell(told, pid)
            else:
                poll.unregister(ready)
                os.close(ready)
                pid, told = children.pop(ready)
                _tell(told, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                os.close(told)


def _tell(pipe: int, number: int) -> None:
    with suppress(BrokenPipeError):  # the test is over
        os.write(pipe, str(number).rjust(NUMBER_BYTES).encode())


def _become(file: int, streams: list[int]) -> None:
    """Have what a new process is given."""
    os.lseek(file, 0, os.SEEK_SET)
    with os.fdopen(file) as content:
        request = json.load(content)
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
    os.closerange(STREAMS, os.sysconf("SC_OPEN_MAX"))
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environ"])
    time.tzset()
    sys.argv = request["command"]


def _leave() -> None:
    """Skip the interpreter's own end, which frees one by one what the system frees at once."""
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    code = 1
    atexit.register(_leave)  # the first one is called last
    main()
    _, option, what, *arguments = sys.argv
    try:
        if option == "-c":
            sys.argv = ["-c", *arguments]
            exec(what, {"__name__": "__main__"})
            code = 0
        else:
            from klaw.cli.main import main as klaw_command

            sys.argv = [str(Path(klaw.__file__).with_name("__main__.py")), *arguments]
            code = klaw_command()
    except SystemExit as ended:
        code = ended.code
