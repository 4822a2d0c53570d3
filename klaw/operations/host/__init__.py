"""The installation: who may use it, its backups, and commands that run beside the server."""

from klaw.operations.host.beside import BACKUP
from klaw.operations.host.token import TOKENS

__all__ = ["BACKUP", "TOKENS"]
