"""A memory card that drills may pull: an ext4 file system of its own, in a file. Needs root and a loop device.

Run what uses it by ``unshare --mount``: a mount namespace that another program makes meanwhile, such as bubblewrap's,
would keep what is unmounted here.
"""

import fcntl
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

SHUTDOWN = 0x8004587D
"""EXT4_IOC_SHUTDOWN of Linux."""
NO_LOG_FLUSH = 2
"""What is not on the device is lost, the file system's own journal too."""
SECTOR = 512


@attrs.frozen
class Card:
    """A mounted card."""

    image: Path
    folder: Path
    options: str

    def mount(self) -> None:
        subprocess.run(["mount", "-o", f"loop,{self.options}", self.image, self.folder], check=True)

    def cut_power(self) -> None:
        """All that the device was not given is lost from now on, and nothing more can be written until ``restore``."""
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, SHUTDOWN, NO_LOG_FLUSH.to_bytes(4, "little"))
        finally:
            os.close(descriptor)

    def restore(self) -> None:
        """Mount it again, as after a power cut; nobody has a file of it open."""
        subprocess.run(["umount", self.folder], check=True)
        self.mount()

    def written(self) -> int:
        """Bytes written to the device since it was made."""
        os.sync()
        device = self.folder.stat().st_dev
        counts = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat").read_text().split()
        return int(counts[6]) * SECTOR


@contextmanager
def card(scratch: Path, options: str = "noatime", megabytes: int = 600) -> Iterator[Card]:
    """Make and mount one. Raises CalledProcessError: not root, or no loop device."""
    made = Card(scratch / "card.img", scratch / "card", options)
    with made.image.open("wb") as file:
        file.truncate(megabytes << 20)
    made.folder.mkdir()
    subprocess.run(["mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", made.image], check=True)
    made.mount()
    try:
        yield made
    finally:
        subprocess.run(["umount", made.folder], check=True)
