"""What a person attaches from MCP servers by writing it into a message: ``@SERVER:URI`` is a resource, and a message
that begins with ``/SERVER:PROMPT`` gives a prompt. It becomes a file of the message: somebody else's text is no word of
the user's."""

import io
import re
import shlex
from collections.abc import Sequence
from functools import partial

import attrs
import trio

from klaw.core import Core
from klaw.domain.attachment import MAX_FILES, NamedFile
from klaw.domain.names import UserId
from klaw.errors import AttachmentRefused, McpError
from klaw.toolbox.mcp.server import McpServer
from klaw.toolbox.spec import PicturedText

READ_S = 30.0
_NAME = r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}"
_RESOURCE = re.compile(rf"(?<!\S)@({_NAME}):(\S{{1,1000}})")
_PROMPT = re.compile(rf"/({_NAME}):(\S{{1,200}})(.*)", re.DOTALL)


@attrs.frozen
class McpReference:
    server: McpServer
    key: str
    """The resource's URI, or the prompt's name."""
    arguments: str | None = None
    """Of a prompt, as they were written."""

    async def read(self) -> PicturedText:
        """Raises McpError."""
        if self.arguments is None:
            return await self.server.read(self.key)
        prompt = next((each for each in self.server.entries["prompts"] if each.key == self.key), None)
        if prompt is None:
            known = ", ".join(each.key for each in self.server.entries["prompts"][:20])
            raise McpError(f"it has no such prompt; it has: {known}")
        return await self.server.prompt(self.key, _arguments(self.arguments, prompt.arguments, prompt.required))

    @property
    def name(self) -> str:
        """Of its file. It says where the text comes from."""
        own = self.key.rpartition("/")[2] or "resource"
        kind = "resource" if self.arguments is None else "prompt that the user gives"
        return f"{own} ({kind}, from the MCP server {self.server.name})"


def _arguments(text: str, known: Sequence[str], required: Sequence[str]) -> dict[str, str]:
    """``name=value``, or values in the order in which the prompt names them. Raises McpError."""
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    named = dict(each.split("=", 1) for each in words if each.partition("=")[0] in known and "=" in each)
    places = [each for each in words if each.partition("=")[0] not in named]
    free = [each for each in known if each not in named]
    if len(free) == 1 and places:  # the rest of the message
        places = [" ".join(places)]
    if len(places) > len(free):
        raise McpError(f"it takes {', '.join(known) or 'no arguments'}, and not so many")
    given = {**named, **dict(zip(free, places, strict=False))}
    if missing := [each for each in required if each not in given]:
        raise McpError(f"it needs {', '.join(missing)}, as in {missing[0]}=…")
    return given


def references_in(text: str, user: UserId, servers: Sequence[McpServer]) -> list[McpReference]:
    """What a message attaches of the servers that the user may use; anything else is text."""
    known = {each.name: each for each in servers if each.is_for(user)}
    found = [McpReference(known[name], uri) for name, uri in _RESOURCE.findall(text) if name in known]
    begun = _PROMPT.match(text.strip())
    if begun and begun[1] in known and known[begun[1]].entries.get("prompts"):
        found.append(McpReference(known[begun[1]], begun[2], begun[3]))
    return found[:MAX_FILES]


async def attach(references: Sequence[McpReference], user: UserId, core: Core) -> tuple[NamedFile, ...]:
    """Read them, and keep each as a file of the user's. Raises AttachmentRefused: one cannot be read; StorageFull."""
    files: list[NamedFile] = []
    for each in references:
        try:
            with trio.fail_after(READ_S):
                content = await each.read()
        except (McpError, trio.TooSlowError) as error:
            why = str(error) or f"it does not answer within {READ_S:g} s"
            raise AttachmentRefused(
                "not_attached", f"{each.server.name}:{each.key} cannot be attached: {why}"
            ) from None
        pieces = [content.text.encode(), *(picture.data for picture in content.pictures)]
        for data in pieces if content.text else pieces[1:]:
            kept = await core.attachments.take(user, each.name, partial(io.BytesIO, data))
            files.append(NamedFile(sha256=kept.sha256, name=each.name))
    return tuple(files[:MAX_FILES])
