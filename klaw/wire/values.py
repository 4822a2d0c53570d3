"""Values in frames, with the checks of what a client sends."""

import base64
from collections.abc import Callable
from typing import Annotated

from klaw.convert import Bounds, Check, Form
from klaw.domain.names import chat_name, client_id
from klaw.errors import InvalidName, ProtocolError


def _named(code: str, check: Callable[[str], str]) -> Check:
    """A check of a name, with the code of its error."""

    def checked(name: str) -> str:
        try:
            return check(name)
        except InvalidName as error:
            raise ProtocolError(code, str(error)) from None

    return Check(checked)


def _from_base64(text: object) -> bytes:
    if not isinstance(text, str):
        raise TypeError("must be a text")
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise ValueError("must be base64") from None


ChatName = Annotated[str, _named("bad_chat", chat_name)]
MessageId = Annotated[str, _named("bad_id", client_id)]
Seq = Annotated[int, Bounds(0)]
Ref = Annotated[str, Bounds(1, 64)]
"""A client's own mark on a request, echoed in the answer and in an error."""
Data = Annotated[bytes, Form(_from_base64, lambda data: base64.b64encode(data).decode())]
