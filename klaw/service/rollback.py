"""Keeps the environment, by hard links, and the database until the new version works. A kill at any step leaves what
works or can be put back: drafts have ``.part`` behind their names, the environment gets its name last, and going back
begins with it. Blocks."""

import os
import shutil
from pathlib import Path

import attrs

from klaw import atomic_file

KEPT = ".before-update"
PART = ".part"


@attrs.frozen
class Rollback:
    prefix: Path
    database: Path

    @property
    def environment(self) -> Path:
        return self.prefix.with_name(self.prefix.name + KEPT)

    @property
    def _failed(self) -> Path:
        return self.prefix.with_name(f"{self.prefix.name}.failed-update")

    @property
    def copies(self) -> dict[Path, Path]:
        wal = self.database.with_name(f"{self.database.name}-wal")
        return {each: each.with_name(each.name + KEPT) for each in (self.database, wal)}

    def is_there(self) -> bool:
        """Whether an update was interrupted."""
        return os.path.lexists(self.environment) or any(map(os.path.lexists, self.copies.values()))

    def keep(self, *, database: bool) -> None:
        """The server is stopped. Raises OSError: nothing is kept."""
        try:
            self.drop()
            # pip never writes into a file that is there, it makes new ones: so links keep what was.
            shutil.copytree(self.prefix, _part(self.environment), symlinks=True, copy_function=os.link)
            copies = {file: copy for file, copy in self.copies.items() if database and file.exists()}
            for file, copy in copies.items():
                shutil.copy2(file, _part(copy))
                shutil.chown(_part(copy), file.stat().st_uid, file.stat().st_gid)
                atomic_file.sync(_part(copy))
            for each in (*copies.values(), self.environment):
                _part(each).rename(each)
                atomic_file.sync(each.parent)
        except BaseException:
            self.drop()
            raise

    def drop(self) -> None:
        """Remove what was kept, and what a kill left of it."""
        for copy in self.copies.values():
            for each in (copy, _part(copy)):
                each.unlink(missing_ok=True)
        for folder in (_part(self.environment), self.environment, self._failed):
            shutil.rmtree(folder, ignore_errors=True)

    def put_back(self) -> None:
        """The server is stopped. Raises OSError: do it again."""
        if self.environment.exists():
            shutil.rmtree(self._failed, ignore_errors=True)
            if self.prefix.exists():
                self.prefix.rename(self._failed)
            self.environment.rename(self.prefix)
            atomic_file.sync(self.prefix.parent)
        (file, copy), (wal, wal_copy) = self.copies.items()
        if copy.exists():
            for each in (wal, file.with_name(f"{file.name}-shm")):  # of the newer database
                each.unlink(missing_ok=True)
            copy.replace(file)
            if wal_copy.exists():
                wal_copy.replace(wal)
            atomic_file.sync(file.parent)
        self.drop()


def _part(path: Path) -> Path:
    return path.with_name(path.name + PART)
