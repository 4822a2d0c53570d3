"""Telling failures from cancellation, and describing them without their text (which may hold content)."""

import traceback


def split_cancelled(error: BaseException) -> tuple[Exception | None, BaseException | None]:
    """Split what escaped a task into (ordinary failure, what must travel on: cancellation, KeyboardInterrupt …)."""
    if isinstance(error, BaseExceptionGroup):
        failures, rest = error.split(Exception)
        return (failures if isinstance(failures, Exception) else None), rest  # a group of Exceptions is one
    if isinstance(error, Exception):
        return error, None
    return None, error


def leaves(error: BaseException) -> list[BaseException]:
    """The errors of a group and of the groups in it; of no group only itself."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in leaves(inner)]
    return [error]


def error_class(error: BaseException) -> str:
    """Class name of the error; for a group the names of its leaves, joined by ``+``."""
    return "+".join(dict.fromkeys(type(leaf).__name__ for leaf in leaves(error)))


def where(error: BaseException) -> str:
    """The innermost frames as ``module.py:line function``, innermost last; no source lines, no values."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    return " > ".join(f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno} {frame.name}" for frame in frames)


def let_go(error: BaseException) -> None:
    """Let go of the frames that an error, and those behind it, went through. Frames refer to the errors that they
    handle, so these circles would wait for the garbage collection with all that the frames hold."""
    error.__traceback__ = None
    behind = (error.__cause__, error.__context__, *(leaves(error) if isinstance(error, BaseExceptionGroup) else ()))
    for each in behind:
        if each is not None and each.__traceback__ is not None:
            let_go(each)
