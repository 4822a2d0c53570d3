"""A pytest plugin: a test that hangs ends as one failed test that says where it hung, and the others go on.

An alarm of the real clock goes off ``hang_s`` seconds (an ini option of pytest) after a test's set-up, body or
tear-down began. It does what Ctrl-C does: Trio cancels the tasks in good order, and a blocking call of the main thread
is interrupted. A test that goes on all the same for some seconds ends its process; pytest-xdist makes one failed test
of that too, and starts another worker.
"""

import faulthandler
import os
import signal
import sys
import traceback
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
import trio

GRACE_S = 10.0
"""For the clean-up of an interrupted test; children are waited for in it."""
_FRAMES = 12
"""Innermost ones that are shown of each stack."""
_terminal = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("hang_s", "seconds after which a test counts as hanging", default="900")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_terminal] = os.dup(2)  # nothing is captured yet
    signal.signal(signal.SIGINT, signal.default_int_handler)  # Trio takes interrupts only where this is in place


def pytest_unconfigure(config: pytest.Config) -> None:
    os.close(config.stash[_terminal])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, Any]:
    with _watched(item):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    with _watched(item):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    with _watched(item):
        return (yield)


@contextmanager
def _watched(item: pytest.Item) -> Iterator[None]:
    terminal = item.config.stash[_terminal]
    hang_s = float(item.config.getini("hang_s"))
    stacks = ""

    def ring(_number: int, frame: FrameType | None) -> None:
        nonlocal stacks
        if stacks:
            os.write(terminal, f"\n{item.nodeid} hangs, and goes on when it is interrupted:\n{_stacks(frame)}".encode())
            os._exit(70)
        stacks = _stacks(frame)
        interrupt = signal.getsignal(signal.SIGINT)
        assert callable(interrupt)
        interrupt(signal.SIGINT, frame)

    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, hang_s, GRACE_S)
    # For code that never gives the interpreter back: this may crash while it prints, and is about to exit anyway.
    faulthandler.dump_traceback_later(2 * hang_s + GRACE_S, exit=True, file=terminal)
    try:
        yield
    except BaseException as error:
        _cancel()
        if not stacks or not _has_interrupt(error):
            raise
        pytest.fail(f"hung for {hang_s:g} s\n{stacks}", pytrace=False)
    finally:
        _cancel()
    if stacks:  # it took the interrupt for something else
        pytest.fail(f"hung for {hang_s:g} s\n{stacks}", pytrace=False)


def _cancel() -> None:
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    faulthandler.cancel_dump_traceback_later()


def _has_interrupt(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return error.split(KeyboardInterrupt)[0] is not None
    return isinstance(error, KeyboardInterrupt)


def _stacks(frame: FrameType | None) -> str:
    """What the main thread, the other threads and Trio's tasks are doing; called in the main thread."""
    parts = ["the main thread:\n", *traceback.format_stack(frame)[-_FRAMES:]]
    main = sys._getframe()
    for ident, other in sys._current_frames().items():
        if other is not main:
            parts += [f"thread {ident}:\n", *traceback.format_stack(other)[-_FRAMES:]]
    try:
        tasks = [trio.lowlevel.current_root_task()]
    except RuntimeError:
        tasks = []
    while tasks:
        task = tasks.pop()
        if task is None:
            continue
        parts.append(f"task {task.name}:\n")
        parts += traceback.StackSummary.extract(task.iter_await_frames()).format()[-_FRAMES:]
        tasks += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
    return "".join(parts)
