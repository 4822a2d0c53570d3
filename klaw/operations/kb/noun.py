"""What all operations of knowledge bases share."""

from typing import TYPE_CHECKING

import attrs

from klaw.domain.names import UserId
from klaw.operations import operation as op

if TYPE_CHECKING:
    from klaw.store.engine.database import Readers
    from klaw.store.kinds.knowledge.bases import Membership

NOUN = op.Noun("kb", "knowledge bases: documents and graphs that chats are answered from (docs/knowledge.md)")


@attrs.frozen(kw_only=True)
class OfBase(op.OfUser):
    base: op.Name = op.required("the base's name or id", id_of="kb")


async def meant(readers: "Readers", user: UserId, text: str) -> "Membership":
    """The base that a user means.

    Raises:
        OperationError: ``several_bases``.
        NoSuchBase
    """
    from klaw.errors import NoSuchBase
    from klaw.store.kinds.knowledge import bases

    found = await readers.run(bases.of_user, user, named=text)
    own = [each for each in found if each.base.id == text] or [each for each in found if each.base.user == user]
    if not own and len(found) > 1:
        ids = ", ".join(f"{each.base.id} (of {each.base.user})" for each in found)
        several = f"several bases that are shared with you have this name; use one of the ids: {ids}"
        raise op.OperationError("several_bases", several, field="base")
    for each in own or found:
        return each
    raise NoSuchBase
