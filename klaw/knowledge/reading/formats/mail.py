"""A message in a file: who wrote when to whom about what, and its text. Attachments are named only."""

import email
import email.policy
from collections.abc import Mapping
from email.message import EmailMessage
from typing import Any, BinaryIO, cast

from klaw.domain.charset import decode
from klaw.domain.text import plural
from klaw.knowledge.reading.formats.text import Markdown, paragraphs
from klaw.knowledge.reading.output import Output, UnreadableError
from klaw.toolbox.html_text import convert

MAX_PARTS = 1000
MAX_HEADER_CHARS = 20_000
"""Some five hundred addresses: the library takes quadratic time for one, and a minute for 20,000 parameters."""
_HEADERS = ("From", "To", "Cc", "Date", "Subject")


class _Policy(email.policy.EmailPolicy):
    def header_fetch_parse(self, name: str, value: str) -> Any:
        return super().header_fetch_parse(name, value[:MAX_HEADER_CHARS])


def read(file: BinaryIO, output: Output, _request: Mapping[str, Any]) -> None:
    """One message."""
    message = cast("EmailMessage", email.message_from_binary_file(file, policy=_Policy()))
    if sum(1 for _ in message.walk()) > MAX_PARTS:
        raise UnreadableError("too_much_text", f"has more than {MAX_PARTS:,} parts")
    if not any(name in message for name in _HEADERS):
        raise UnreadableError("broken", "is not a message: it has no sender, date or subject")
    if any(len(value) > MAX_HEADER_CHARS for _, value in message.raw_items()):
        output.problem(
            "header_cut", f"has headers of more than {MAX_HEADER_CHARS:,} characters; their rest is left out"
        )
    subject = str(message.get("Subject", ""))
    headings = (subject,) if subject.strip() else ()
    output.title(subject)
    lines = [f"{name}: {message[name]}" for name in _HEADERS if message.get(name)]
    attached = [name for part in message.iter_attachments() if (name := part.get_filename())]
    if attached:
        text = f"has {plural(len(attached), 'attachment')}, not read: add each of them as a file"
        output.problem("attachments", text)
    lines += [f"Attachment: {name}" for name in attached]
    output.block("\n".join(lines), headings=headings)
    body = message.get_body(("plain", "html"))
    if body is None:
        return
    data = body.get_payload(decode=True)
    text = decode(data if isinstance(data, bytes) else b"", body.get_content_charset())
    if body.get_content_subtype() == "html":
        Markdown(output, first_is_title=False, under=headings).read(convert(text, "", plain=True)["text"].splitlines())
    else:
        paragraphs(text.splitlines(), output, headings)
