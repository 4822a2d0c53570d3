"""Memory that the C library keeps after a run of the model."""

import ctypes


def give_back() -> None:
    """Return free memory to the system. A run over a long text leaves 50 MB of it between what is in use: glibc keeps
    that, because it might be asked for again. Takes a few milliseconds; does nothing with another C library."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
