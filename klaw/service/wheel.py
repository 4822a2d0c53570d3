"""The content of a wheel, and whether an update may be tried with it. Blocks."""

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
    path: Path
    version: str
    schema: int

    @property
    def is_newer(self) -> bool:
        return order(self.version) > order(__version__)

    @property
    def way_back(self) -> str:
        """Whether this version can open the database afterwards."""
        if self.schema == migrations.latest():
            return f"the database stays as it is (schema {self.schema}): either version opens it"
        return (
            f"the database goes from schema {migrations.latest()} to {self.schema}, which Klaw {__version__} does not"
            " open: going back later needs a backup from before the update"
        )


MAX_WHEEL, MAX_UNPACKED, MAX_ABOUT = 64 << 20, 256 << 20, 1 << 20
_MIGRATION = re.compile(r"klaw/store/migrations/(\d{1,6})_\w{1,80}\.sql")
_VERSION = re.compile(r"[\w.+!]{1,64}")


def read_wheel(path: Path) -> Release:
    """Raises UpdateRefused: it is no wheel of Klaw."""
    try:
        if not path.is_file() and path.exists():
            raise UpdateRefused(f"{path} is not a file: name the wheel itself")
        if path.stat().st_size > MAX_WHEEL:
            raise _too_large(path, "the file", MAX_WHEEL)
        with zipfile.ZipFile(path) as wheel:
            names = wheel.namelist()
            if sum(each.file_size for each in wheel.infolist()) > MAX_UNPACKED:
                raise _too_large(path, "what it holds", MAX_UNPACKED)
            (about,) = [name for name in names if re.fullmatch(r"klaw-[^/]+\.dist-info/METADATA", name)]
            if wheel.getinfo(about).file_size > MAX_ABOUT:
                raise _too_large(path, "its METADATA", MAX_ABOUT)
            told = HeaderParser().parsestr(wheel.read(about).decode("utf-8"))
            damaged = wheel.testzip()
    except OSError as error:
        raise UpdateRefused(f"{path} cannot be read: {error.strerror or type(error).__name__}") from error
    except (ValueError, zipfile.BadZipFile, zlib.error, RuntimeError) as error:
        raise UpdateRefused(f"{path} is not a wheel of Klaw, or not all of it") from error
    if damaged is not None:
        raise UpdateRefused(f"{path} is damaged ({damaged}): get it again")
    if not _VERSION.fullmatch(str(told["Version"] or "")):
        raise UpdateRefused(f"{path} does not say which version of Klaw it is: get it again")
    if not re.fullmatch(rf"klaw-{re.escape(str(told['Version']))}-[\w.]+-[\w.]+-[\w.]+\.whl", path.name):
        made = f"klaw-{told['Version']}-py3-none-any.whl"
        raise UpdateRefused(f"{path.name}: pip wants the name that the wheel was made with ({made}): rename it")
    numbers = [int(found[1]) for name in names if (found := _MIGRATION.fullmatch(name))]
    return Release(path=path, version=str(told["Version"]), schema=max(numbers, default=0))


def _too_large(path: Path, what: str, most: int) -> UpdateRefused:
    return UpdateRefused(f"{path} is not a wheel of Klaw: {what} has more than {most >> 20} MiB; get it again")


def order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))
