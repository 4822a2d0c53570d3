"""Removing what belongs to sources that are gone: passages with their full text and vectors, then the files."""

import trio

from klaw.store.engine.database import Readers
from klaw.store.engine.writer import Writer
from klaw.store.kinds.knowledge import documents

AT_ONCE = 100
"""Documents that are looked for at once."""
PAUSE_FACTOR = 0.5
"""A pause is so many times as long as the transaction before it: who waits shares none with the next one."""


async def sweep(readers: Readers, writer: Writer) -> int:
    """Remove documents whose source is gone, a part at a time, so that nobody has to wait for long. Returns how many
    there were. Cancellation: the rest is left to the next call."""
    total = 0
    while found := await readers.run(documents.orphans, AT_ONCE):
        for each in found:
            begin, more = trio.current_time(), True
            while more:
                more = await writer.run(documents.remove_some, each)
                await trio.sleep((trio.current_time() - begin) * PAUSE_FACTOR)
                begin = trio.current_time()
        total += len(found)
    return total
