"""A scriptable LLM server that speaks the OpenAI streaming API over real sockets.

In a test::

    async with serve_llm() as server:
        server.replies.append(text_reply("Hello", " there"))
        ...  # a client of server.url
        assert server.requests[0].last_user == "Hi"

Alone, for benchmarks and for tests with a separate server process (prints ``{"port": N}``)::

    python -m tests.support.llm_server --port 0 --reply TEXT [--echo] [--delay-ms N] [--first-delay-ms N]
"""

import argparse
import json
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from typing import Any, Protocol

import attrs
import h11
import trio


@attrs.frozen
class Text:
    """A chunk of the answer."""

    text: str


@attrs.frozen
class Reasoning:
    """A chunk of ``reasoning_content``."""

    text: str


@attrs.frozen
class Tool:
    """A tool call; its arguments are sent in parts, as providers do."""

    id: str
    name: str
    arguments: str
    index: int = 0
    parts: int = 2

    def split(self) -> list[str]:
        """The arguments in parts of about the same length."""
        cuts = [len(self.arguments) * number // self.parts for number in range(self.parts + 1)]
        return [self.arguments[begin:end] for begin, end in pairwise(cuts)]


@attrs.frozen
class Wait:
    """Wait until the test sets the event."""

    event: trio.Event


@attrs.frozen
class Pause:
    """Sleep (benchmarks)."""

    seconds: float


@attrs.frozen
class Raw:
    """Bytes sent as they are, for instance broken SSE."""

    data: bytes


@attrs.frozen
class Hang:
    """Send nothing more; end when the client closes the connection."""


@attrs.frozen
class Cut:
    """Close the connection without ending the response."""


Step = Text | Reasoning | Tool | Wait | Pause | Raw | Hang | Cut


@attrs.frozen(kw_only=True)
class Reply:
    """One scripted response.

    With status 200 and no ``body`` it is an event stream of ``steps``, then the finish reason, usage and ``[DONE]``
    (each can be left out). With ``body`` it is sent whole with ``content_type``. ``before_head`` steps (Wait, Pause,
    Hang, Cut) run before the status line.
    """

    steps: Sequence[Step] = ()
    status: int = 200
    headers: Sequence[tuple[str, str]] = ()
    content_type: str = "text/event-stream"
    body: bytes | None = None
    before_head: Sequence[Step] = ()
    finish_reason: str | None = "stop"
    usage: tuple[int, int] | None = (11, 7)
    """Prompt and completion tokens."""
    done: bool = True


def text_reply(*chunks: str, **changes: Any) -> Reply:
    """An answer in the given chunks."""
    return Reply(steps=tuple(Text(chunk) for chunk in chunks), **changes)


def tool_reply(*tools: Tool, **changes: Any) -> Reply:
    """An answer that calls tools."""
    numbered = tuple(attrs.evolve(tool, index=number) for number, tool in enumerate(tools))
    return Reply(steps=numbered, finish_reason="tool_calls", **changes)


def error_reply(status: int, code: str = "server_error", message: str = "provider text", **changes: Any) -> Reply:
    """An error status with an OpenAI error object."""
    body = json.dumps({"error": {"message": message, "type": code, "code": code}}).encode()
    return Reply(status=status, body=body, content_type="application/json", **changes)


def echo_reply(request: "Recorded") -> Reply:
    """Answers with ``echo: `` and the last user message, word by word."""
    words = ("echo: " + request.last_user).split(" ")
    return text_reply(*[word if number == 0 else " " + word for number, word in enumerate(words)])


class Recorded:
    """A request as the server saw it."""

    def __init__(self, method: str, path: str, headers: dict[str, str], body: dict[str, Any], raw: bytes = b"") -> None:
        self.method = method
        self.path = path
        self.headers = headers
        """Names in lower case."""
        self.body = body
        """Parsed JSON; empty when there was none."""
        self.raw = raw
        """The body as it came."""
        self.gone = trio.Event()
        """Set when the client closed the connection before the reply was complete."""

    @property
    def messages(self) -> list[dict[str, Any]]:
        return list(self.body.get("messages", []))

    @property
    def last_user(self) -> str:
        """Content of the last user message, or an empty text."""
        return next((str(m["content"]) for m in reversed(self.messages) if m["role"] == "user"), "")


class LlmServer:
    """The running server.

    ``script`` writes the event streams; OpenAI's by default (``anthropic_server`` has the other).

    ``replies`` are used up first, in order; then ``respond`` makes one for each request (the answer "ok" by default).
    It lists no models: with ``lists`` False a GET is refused and counts as no request.
    """

    lists = False

    def __init__(self, script: "Callable[[Recorded], Script] | None" = None) -> None:
        self._script = script or OpenAiScript
        self.url = ""
        """Base URL, ending in ``/v1``."""
        self.port = 0
        self.replies: deque[Reply] = deque()
        self.respond: Callable[[Recorded], Reply] = lambda _request: text_reply("ok")
        self.requests: list[Recorded] = []
        self.connections = 0
        """Connections accepted so far."""
        self._news = trio.Condition()
        self._listening = trio.CancelScope()

    async def wait_for_requests(self, count: int) -> None:
        """Wait until at least that many requests have arrived."""
        async with self._news:
            while len(self.requests) < count:
                await self._news.wait()

    async def serve(self, port: int, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Listen on the loopback port (0: a free one) until cancelled."""
        listeners = await trio.open_tcp_listeners(port, host="127.0.0.1")
        self.port = listeners[0].socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"
        async with trio.open_nursery() as nursery:
            self._listening = nursery.cancel_scope
            nursery.start_soon(trio.serve_listeners, self._connection, listeners)
            task_status.started()

    def stop(self) -> None:
        """Listen no more and close all connections."""
        self._listening.cancel(reason="the server is to be dead")

    # -- inside ----------------------------------------------------------------------------------------------------

    async def _connection(self, stream: trio.SocketStream) -> None:
        self.connections += 1
        http = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
        try:
            while True:
                request = await self._read_request(stream, http)
                if request is None:
                    break
                if request.method == "GET" and not self.lists:
                    await self._play(stream, http, request, error_reply(404, "not_found"))
                    http.start_next_cycle()
                    continue
                async with self._news:
                    self.requests.append(request)
                    self._news.notify_all()
                reply = self.replies.popleft() if self.replies else self.respond(request)
                complete = False
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._watch, stream, http, request, nursery.cancel_scope)
                    with suppress(trio.BrokenResourceError):
                        complete = await self._play(stream, http, request, reply)
                    nursery.cancel_scope.cancel(reason="reply is complete")
                if not complete:
                    break
                http.start_next_cycle()
        except (trio.BrokenResourceError, h11.RemoteProtocolError):
            pass
        finally:
            await trio.aclose_forcefully(stream)

    async def _read_request(self, stream: trio.SocketStream, http: h11.Connection) -> Recorded | None:
        head: h11.Request | None = None
        body = bytearray()
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                http.receive_data(await stream.receive_some(65536))
            elif isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                assert head is not None
                headers = {name.decode(): value.decode() for name, value in head.headers}
                is_form = headers.get("content-type", "").startswith("multipart/form-data")
                parsed = json.loads(body) if body and not is_form else {}
                return Recorded(head.method.decode(), head.target.decode(), headers, parsed, bytes(body))
            else:
                return None

    async def _watch(
        self, stream: trio.SocketStream, http: h11.Connection, request: Recorded, scope: trio.CancelScope
    ) -> None:
        """Notice that the client went away in the middle of a reply."""
        with suppress(trio.BrokenResourceError):
            while data := await stream.receive_some(65536):
                http.receive_data(data)  # the next request of a client that is quicker than our cancel
        request.gone.set()
        scope.cancel(reason="the client went away")

    async def _play(self, stream: trio.SocketStream, http: h11.Connection, request: Recorded, reply: Reply) -> bool:
        async def send(event: Any) -> None:
            await stream.send_all(http.send(event) or b"")

        for step in reply.before_head:
            if not await self._quiet(step):
                return False
        headers = [("content-type", reply.content_type), *reply.headers]
        if reply.body is not None:
            headers.append(("content-length", str(len(reply.body))))
            await send(h11.Response(status_code=reply.status, headers=headers))
            await send(h11.Data(data=reply.body))
            await send(h11.EndOfMessage())
            return True
        headers.append(("transfer-encoding", "chunked"))
        await send(h11.Response(status_code=reply.status, headers=headers))
        script = self._script(request)
        for step in reply.steps:
            if isinstance(step, Wait | Pause | Hang | Cut):
                if not await self._quiet(step):
                    return False
                continue
            for data in [step.data] if isinstance(step, Raw) else script.frames(step):
                await send(h11.Data(data=data))
        await send(h11.Data(data=b"".join(script.ending(reply)) or b": end\n\n"))
        await send(h11.EndOfMessage())
        return True

    async def _quiet(self, step: Step) -> bool:
        """Do a step that sends nothing. False: close the connection."""
        match step:
            case Wait(event):
                await event.wait()
            case Pause(seconds):
                await trio.sleep(seconds)
            case Hang():
                await trio.sleep_forever()
            case Cut():
                return False
            case _:
                raise ValueError(f"{step} cannot stand here")
        return True


class Script(Protocol):
    """Writes one event stream in the language of one API."""

    def frames(self, step: Text | Reasoning | Tool) -> list[bytes]:
        """What a step sends, as events."""
        ...

    def ending(self, reply: Reply) -> list[bytes]:
        """What ends the stream."""
        ...


class OpenAiScript:
    """See ``Script``."""

    def __init__(self, request: Recorded) -> None:
        self._request = request

    def frames(self, step: Text | Reasoning | Tool) -> list[bytes]:
        match step:
            case Text(text):
                return [self._chunk({"content": text})]
            case Reasoning(text):
                return [self._chunk({"reasoning_content": text})]
            case Tool():
                first, *rest = step.split()
                head = {"name": step.name, "arguments": first}
                begin = {"index": step.index, "id": step.id, "type": "function", "function": head}
                more = [{"index": step.index, "function": {"arguments": part}} for part in rest]
                return [self._chunk({"tool_calls": [call]}) for call in (begin, *more)]

    def ending(self, reply: Reply) -> list[bytes]:
        frames = []
        if reply.finish_reason is not None:
            frames.append(self._chunk({}, finish_reason=reply.finish_reason))
        if reply.usage is not None and self._request.body.get("stream_options", {}).get("include_usage"):
            prompt, completion = reply.usage
            usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
            frames.append(event({"id": "c1", "object": "chat.completion.chunk", "choices": [], "usage": usage}))
        if reply.done:
            frames.append(b"data: [DONE]\n\n")
        return frames

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
        return event(
            {
                "id": "c1",
                "object": "chat.completion.chunk",
                "model": self._request.body.get("model", ""),
                "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}],
            }
        )


def event(value: dict[str, Any]) -> bytes:
    """A server-sent event without a name."""
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


@asynccontextmanager
async def serve_llm(server: LlmServer | None = None) -> AsyncIterator[LlmServer]:
    """Run a server on a free loopback port for the body."""
    server = server or LlmServer()
    async with trio.open_nursery() as nursery:
        await nursery.start(server.serve, 0)
        yield server
        nursery.cancel_scope.cancel(reason="the test is over")


async def _alone(options: argparse.Namespace) -> None:
    server = LlmServer()

    def respond(request: Recorded) -> Reply:
        reply = echo_reply(request) if options.echo else text_reply(*_pieces(options.reply))
        pause = Pause(options.delay_ms / 1000)
        steps = [part for step in reply.steps for part in ((step, pause) if options.delay_ms else (step,))]
        before = (Pause(options.first_delay_ms / 1000),) if options.first_delay_ms else ()
        return attrs.evolve(reply, steps=steps, before_head=before)

    server.respond = respond
    async with trio.open_nursery() as nursery:
        await nursery.start(server.serve, options.port)
        print(json.dumps({"port": server.port}), flush=True)


def _pieces(text: str) -> list[str]:
    words = text.split(" ")
    return [word if number == 0 else " " + word for number, word in enumerate(words)]


def main(arguments: list[str]) -> None:
    """Entry point of ``python -m tests.support.llm_server``."""
    parser = argparse.ArgumentParser(description="Scripted OpenAI-compatible server")
    parser.add_argument("--port", type=int, default=0, help="0: a free one")
    parser.add_argument("--reply", default="ok", help="the answer to everything, streamed word by word")
    parser.add_argument("--echo", action="store_true", help="answer with the last user message instead")
    parser.add_argument("--delay-ms", type=float, default=0, help="pause after every word")
    parser.add_argument("--first-delay-ms", type=float, default=0, help="pause before the response head")
    try:
        trio.run(_alone, parser.parse_args(arguments))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main(sys.argv[1:])
