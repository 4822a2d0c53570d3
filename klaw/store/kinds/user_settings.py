"""What users chose for themselves: the time zone of their reminders and tasks."""

from typing import Annotated

import apsw
import attrs

from klaw.convert import Wire
from klaw.domain.names import UserId
from klaw.store.changes import Kind
from klaw.store.engine.tables import table
from klaw.store.engine.transaction import Transaction


@attrs.frozen(kw_only=True)
class UserSettings:
    user: Annotated[UserId, Wire("user_id")]
    zone: str
    """IANA name."""
    updated_at: str


SETTINGS: Kind[UserSettings] = Kind(
    what="settings",
    plural="user settings",
    cls=UserSettings,
    table="user_settings",
    id="user_id",
    ops={"put": UserSettings},
    beside=("user_id",),
    tables=(table("user settings", "user_settings", "user_id", "user_id, zone, updated_at", first="", small=True),),
)


def zone(connection: apsw.Connection, user: UserId) -> str | None:
    """The zone that a user chose; None: the server's holds."""
    found = SETTINGS.get(connection, user, user)
    return None if found is None else found.zone


def set_zone(tx: Transaction, user: UserId, name: str, at: str) -> None:
    tx.journal(SETTINGS.put(user, user, UserSettings(user=user, zone=name, updated_at=at), at))
