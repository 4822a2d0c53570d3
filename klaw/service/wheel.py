"""What a wheel of Klaw holds, and whether an update may be tried with it. Blocks."""

import re
import zipfile
import zlib
from email.parser import HeaderParser
from pathlib import Path

import attrs

from klaw import __version__
from klaw.errors import KlawError
from klaw.store import migrations


class UpdateRefused(KlawError):
    """Nothing was changed; the text says why and what to do."""


@attrs.frozen(kw_only=True)
class Release:
    """What a wheel holds."""

    path: Path
    version: str
    schema: int
    """Of the database that it writes."""

    @property
    def is_newer(self) -> bool:
        return order(self.version) > order(__version__)

    @property
    def way_back(self) -> str:
        """Whether the version of now can open what the new one leaves."""
        if self.schema == migrations.latest():
            return f"the database stays as it is (schema {self.schema}): either version opens it"
        return (
            f"the database goes from schema {migrations.latest()} to {self.schema}, which Klaw {__version__} does not"
            " open: going back later takes a backup of before"
        )


def read_wheel(path: Path) -> Release:
    """What a wheel holds.

    Raises:
        UpdateRefused: it is no wheel of Klaw.
    """
    try:
        with zipfile.ZipFile(path) as wheel:
            names = wheel.namelist()
            (about,) = [name for name in names if re.fullmatch(r"klaw-[^/]+\.dist-info/METADATA", name)]
            told = HeaderParser().parsestr(wheel.read(about).decode("utf-8"))
            damaged = wheel.testzip()
    except OSError as error:
        raise UpdateRefused(f"{path} cannot be read: {error.strerror or type(error).__name__}") from error
    except (ValueError, zipfile.BadZipFile, zlib.error, RuntimeError) as error:
        raise UpdateRefused(f"{path} is not a wheel of Klaw, or not all of it") from error
    if damaged is not None:
        raise UpdateRefused(f"{path} is damaged ({damaged}): get it again")
    if not re.fullmatch(rf"klaw-{re.escape(str(told['Version']))}-[\w.]+-[\w.]+-[\w.]+\.whl", path.name):
        made = f"klaw-{told['Version']}-py3-none-any.whl"
        raise UpdateRefused(f"{path.name}: pip wants the name that the wheel was made with ({made}): rename it")
    numbers = [
        int(found[1]) for name in names if (found := re.fullmatch(r"klaw/store/migrations/(\d+)_\w+\.sql", name))
    ]
    return Release(path=path, version=str(told["Version"]), schema=max(numbers, default=0))


def order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))
