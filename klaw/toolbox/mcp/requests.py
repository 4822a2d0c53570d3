"""What an MCP server may ask of its client while it works on a call: the user to fill in a form or to open a page
(elicitation), a model to write something (sampling), and where it may work (roots). Needs the SDK: imported when a
server connects. A person is asked in the chat that the call comes from; where that is not clear, nobody is.
"""

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import attrs
import trio
from mcp_types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestParams,
    ElicitRequestURLParams,
    ElicitResult,
    ErrorData,
    ListRootsResult,
    Root,
    TextContent,
)
from pydantic import FileUrl

from klaw.actor.failure import error_class
from klaw.config.tools import McpServerConfig
from klaw.domain.events import Outcome
from klaw.domain.names import is_group
from klaw.domain.text import clean_output
from klaw.errors import InvalidValue, KlawError
from klaw.llm.types import ChatMessage
from klaw.toolbox.approvals import MAX_WHAT_CHARS, WrittenAnswer
from klaw.toolbox.mcp.forms import ElicitationForm
from klaw.toolbox.mcp.host import McpHost
from klaw.toolbox.spec import ToolContext

MAX_TRIES = 3
MAX_WRITTEN = 4_000
REFUSED = -1
"""The code that the protocol gives for a person's no."""
HOW_TO_ANSWER = (
    "Answer with /answer NAME: VALUE; NAME: VALUE. Yes sends the defaults, no refuses. Never give a password or a key."
)
HOW_TO_OPEN = "Yes tells it that you agree; Klaw does not open it for you."


@attrs.define(eq=False, kw_only=True)
class ServerRequests:
    """Answers the requests of one server; the methods are the callbacks of the SDK."""

    name: str
    config: McpServerConfig
    host: McpHost
    caller: Callable[[], ToolContext | None]
    """Whose call the server works on; None if that is not clear."""

    async def elicit(self, context: object, params: ElicitRequestParams) -> ElicitResult:  # noqa: ARG002
        """Ask the user to fill in a form, or to open a page."""
        if isinstance(params, ElicitRequestURLParams):
            return ElicitResult(action=await self._agree_to_open(params))
        form, problem = ElicitationForm(params.requested_schema), ""
        for _ in range(MAX_TRIES):
            what = f"{problem}It asks: {params.message} | {form.shown()} | {HOW_TO_ANSWER}"
            answer = await self._ask(what, text=True)
            if answer is not Outcome.ALLOWED and not isinstance(answer, WrittenAnswer):
                return ElicitResult(action=_action(answer))
            try:
                content = form.read(answer.text if isinstance(answer, WrittenAnswer) else "")
                return ElicitResult(action="accept", content=content)
            except InvalidValue as wrong:
                problem = f"{wrong}. "
        return ElicitResult(action="cancel")

    async def _agree_to_open(self, params: ElicitRequestURLParams) -> Any:
        host = urlsplit(params.url).hostname
        if not host or urlsplit(params.url).scheme not in ("https", "http"):
            return "decline"
        return _action(
            await self._ask(f"It asks you to open {params.url} (on {host}): {params.message} | {HOW_TO_OPEN}")
        )

    async def sample(self, context: object, params: CreateMessageRequestParams) -> CreateMessageResult | ErrorData:  # noqa: ARG002
        """Let the chat's model write something, if the user agrees."""
        most, call = min(params.max_tokens, MAX_WRITTEN), self.caller()
        messages = [ChatMessage(role=each.role, content=_text(each.content)) for each in params.messages]
        if params.system_prompt:
            messages.insert(0, ChatMessage(role="system", content=clean_output(params.system_prompt)))
        told = " | ".join(f"{each.role}: {each.content}" for each in messages)
        answer = await self._ask(
            f"It wants {call.model if call else 'a model'} to write up to {most} tokens on: {told}"
        )
        if answer is not Outcome.ALLOWED or call is None:
            return ErrorData(code=REFUSED, message="The user did not agree.")
        try:
            text, model, whole = await self.host.write(self.name, self.config.sampling_tokens, call, messages, most)
        except KlawError as error:
            return ErrorData(code=REFUSED, message=f"The model did not answer ({error_class(error)}).")
        content = TextContent(type="text", text=text)
        return CreateMessageResult(
            role="assistant", content=content, model=model, stop_reason="endTurn" if whole else "maxTokens"
        )

    async def roots(self, context: object) -> ListRootsResult:  # noqa: ARG002
        """The folders of the configuration."""
        return ListRootsResult(roots=[Root(uri=FileUrl(each.absolute().as_uri())) for each in self.config.roots])

    async def _ask(self, what: str, *, text: bool = False) -> Outcome | WrittenAnswer | None:
        """None: nobody could be asked."""
        call = self.caller()
        if call is None or call.chat is None or is_group(call.user) or len(what) > MAX_WHAT_CHARS:
            return None
        approvals, began = self.host.approvals, trio.current_time()
        ask = approvals.ask_for_text if text else approvals.ask
        scope, wait_s = call.scope or trio.CancelScope(), approvals.wait_s
        scope.deadline += wait_s
        try:
            return await ask(call.chat, f"{self.name} (MCP)", what, call.turn)
        finally:
            scope.deadline -= max(0.0, began + wait_s - trio.current_time())


def _action(answer: object) -> Any:
    return {Outcome.ALLOWED: "accept", Outcome.DENIED: "decline", None: "decline"}.get(answer, "cancel")  # type: ignore[call-overload]


def _text(content: Any) -> str:
    parts = content if isinstance(content, list) else [content]
    return clean_output("\n".join(each.text if isinstance(each, TextContent) else f"[{each.type}]" for each in parts))
