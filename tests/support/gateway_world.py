"""A gateway over real sockets with chats in memory, and a client that speaks frames."""

import json
import socket
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import attrs
import trio
from trio_websocket import ConnectionClosed, open_websocket, wrap_client_stream

from klaw.actor.clock import SystemClock, new_id
from klaw.actor.mailbox import Mailbox
from klaw.actor.supervisor import Vitals
from klaw.config.schema import AttachmentsConfig, GatewayConfig
from klaw.domain.events import MessageStored
from klaw.domain.message import Message, MessageKind, Role
from klaw.domain.names import ChatId, chat_id, name_of, user_of
from klaw.errors import IdConflict
from klaw.gateway.hub import Hub
from klaw.gateway.listener import Gateway
from klaw.gateway.services import Services
from klaw.gateway.tokens import Authenticator
from klaw.operations import chat as operations
from klaw.operations import uploads
from klaw.store.attachments import Attachments
from klaw.store.kinds import messages
from klaw.store.kinds.knowledge import message_files
from klaw.store.kinds.messages import AppendedMessage, ChatRow
from klaw.store.kinds.variants import branches
from klaw.toolbox.approvals import Approvals
from tests.support.waiting import HANG_S

UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
QUICK = attrs.evolve(
    GatewayConfig(),
    port=0,
    messages_per_second=100_000.0,
    burst=100_000,
    connects_per_second=10_000.0,
    user_messages_per_second=100_000.0,
    user_bytes_per_second=1e9,
)


FILES = AttachmentsConfig()


class FakeChats:
    """Implements ``klaw.chats.directory.ChatDirectory`` in memory; commits before it emits, like the store."""

    def __init__(self, hub):
        self.hub = hub
        self.rows: dict[ChatId, list[Message]] = {}
        self.by_id = {}
        self.started = set()
        self.stopped = []
        self.running = set()
        self.fail_with = None
        self.gate = None
        """An event that a message waits for before it commits."""
        self.read_gate = None
        self.degraded = {}
        self.reads = 0
        self.page = 1000
        """Messages that a read gives at most, whatever the reader asks for."""

    def append(self, user, name, text, role=Role.USER, message_id=None, *, emit=True, turn=None):
        chat = chat_id(user, name)
        rows = self.rows.setdefault(chat, [])
        message = Message(
            id=message_id or f"made-{chat}-{len(rows) + 1}".replace(":", "-"),
            chat=chat,
            user=user,
            channel="websocket",
            role=role,
            type=MessageKind.TEXT,
            content=text,
            tokens=1,
            created_at="2026-11-21T12:00:00.000Z",
            metadata={"turn": turn} if turn else {},
            rowid=len(rows) + 1,
            seq=len(rows) + 1,
            segment=0,
        )
        rows.append(message)
        self.by_id[user, message.id] = message
        if emit:
            self.hub.emit(MessageStored(message=message))
        return message

    def is_on_trial(self):
        return False

    def runs(self, chat):
        return chat in self.started

    async def start(self, user, name):
        await trio.lowlevel.checkpoint()
        self.started.add(chat_id(user, name))

    def submit(self, chat, message_id, text, reply, files=(), model=None, *, transcribed=False):
        trio.lowlevel.spawn_system_task(self._submit, chat, message_id, text, reply)

    async def _submit(self, chat, message_id, text, reply):
        if self.gate is not None:
            await self.gate.wait()
        try:
            reply.set(self._commit(chat, message_id, text))
        except Exception as error:
            reply.fail(error)

    def _commit(self, chat, message_id, text):
        if self.fail_with is not None:
            raise self.fail_with
        row = self.by_id.get((user_of(chat), message_id))
        if row is not None:
            if row.chat != chat:
                raise IdConflict("used in another chat")
            return AppendedMessage(row, True)
        return AppendedMessage(self.append(user_of(chat), name_of(chat), text, message_id=message_id), False)

    async def stop(self, user, name):
        await trio.lowlevel.checkpoint()
        self.stopped.append(chat_id(user, name))
        return chat_id(user, name) in self.running

    def _session(self, chat):
        rows = self.rows[chat]
        return ChatRow(
            key=1, chat=chat, user=rows[0].user, name=name_of(chat), model=None, last_seq=len(rows), segment=0,
            segment_start=1, created_at=rows[0].created_at, updated_at=rows[-1].created_at,
        )  # fmt: skip

    async def session(self, user, name):
        return await self.run(messages.session, chat_id(user, name))

    async def run(self, read, chat, *bounds, variants=False):
        """Stands for ``Readers.run``, of which the operations on a chat need its row and a page of its messages, which
        have no files."""
        await trio.lowlevel.checkpoint()
        if read is branches.page:
            limit, before, after = bounds
            read_page = self.before(chat, before or 1 << 62, limit) if after is None else self.after(chat, after, limit)
            found = await read_page
            return branches.VariantsPage(messages=found)
        if read is message_files.with_readings:
            return bounds[0]
        assert read is messages.session
        return self._session(chat) if chat in self.rows else None

    async def after(self, chat, seq, limit):
        self.reads += 1
        found = [row for row in self.rows.get(chat, []) if row.seq > seq][: min(limit, self.page)]
        await trio.lowlevel.checkpoint()
        if self.read_gate is not None:
            await self.read_gate.wait()
        return found

    async def before(self, chat, seq, limit):
        await trio.lowlevel.checkpoint()
        return [row for row in self.rows.get(chat, []) if row.seq < seq][-limit:]

    async def perform(self, call, caller):
        """The operations on one chat, and one that tests make slow, large or broken by ``answer``."""
        match call.operation.name:
            case "chats_messages":
                return await operations.messages(call.asked, caller, SimpleNamespace(chats=self, readers=self))
            case "chats_stop":
                return await operations.stop_answer(call.asked, caller, SimpleNamespace(chats=self, readers=self))
            case "file_piece":
                return await uploads.file_piece(call.asked, caller, SimpleNamespace(core=self))
            case "chats_list":
                return await self.answer()
        return {"state": "ok", "user": caller.user, "operator": caller.operator}

    async def answer(self):
        await trio.lowlevel.checkpoint()
        return {"chats": []}

    def chat_status(self, chat):
        return {"state": "thinking", "turn": "t1"} if chat in self.running else {"state": "idle"}

    async def unanswered(self, chat):
        await trio.lowlevel.checkpoint()

    def health(self):
        return dict(self.degraded)


class Client:
    """Speaks frames as plain dicts."""

    def __init__(self, ws):
        self.ws = ws

    async def say(self, kind, **fields):
        await self.raw(json.dumps({"type": kind, **fields}))

    async def raw(self, data):
        await self.ws.send_message(data)

    async def hear(self):
        with trio.fail_after(HANG_S):
            return json.loads(await self.ws.get_message())

    async def until(self, kind, **fields):
        """Frames up to the first of this type with these fields; the last one is it."""
        heard = []
        while True:
            frame = await self.hear()
            heard.append(frame)
            if frame["type"] == kind and all(frame.get(key) == value for key, value in fields.items()):
                return heard

    async def get(self, kind, **fields):
        return (await self.until(kind, **fields))[-1]

    async def call(self, operation, ref="c", **args):
        """The result of a call, or its error."""
        await self.say("call", operation=operation, args=args, ref=ref)
        while True:
            frame = await self.hear()
            if frame.get("ref") == ref:
                return frame

    async def hello(self, **fields):
        await self.say("hello", version=2, **fields)
        return await self.hear()

    async def closed(self):
        """Read until the server closes; the close code."""
        with trio.fail_after(HANG_S):
            try:
                while True:
                    await self.ws.get_message()
            except ConnectionClosed as error:
                return error.reason.code


class World:
    def __init__(self, port, gateway, hub, chats, tokens, approvals):
        self.port = port
        self.gateway = gateway
        self.hub = hub
        self.chats = chats
        self.tokens = tokens
        self.approvals = approvals

    @asynccontextmanager
    async def client(self, *, hello=True, path="/ws", headers=(), **fields):
        async with open_websocket(
            "127.0.0.1", self.port, path, use_ssl=False, extra_headers=list(headers), disconnect_timeout=2,
            message_queue_size=1,
        ) as ws:  # fmt: skip
            client = Client(ws)
            if hello:
                assert (await client.hello(**fields))["type"] == "welcome"
            try:
                yield client
            finally:
                # When the server closes first, the library leaves the client's socket open.
                with trio.move_on_after(2):
                    await ws.aclose()
                await trio.aclose_forcefully(ws._stream)
                # Where the close could not be sent the library leaves its reader waiting for room in this queue.
                ws._recv_channel.close()

    @asynccontextmanager
    async def slow_client(self):
        """One whose system takes few bytes that it does not read. Its socket has to be so from the beginning: Linux
        drops what comes for one that is made smaller later, acknowledgements too, and both sides wait for ever."""
        with trio.socket.socket() as raw:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            await raw.connect(("127.0.0.1", self.port))
            async with trio.open_nursery() as nursery:
                ws = await wrap_client_stream(nursery, trio.SocketStream(raw), f"127.0.0.1:{self.port}", "/ws")
                client = Client(ws)
                assert (await client.hello())["type"] == "welcome"
                yield client
                nursery.cancel_scope.cancel()

    async def raw_tcp(self):
        return await trio.open_tcp_stream("127.0.0.1", self.port)

    async def http(self, request):
        """Send bytes, read until the server closes."""
        stream = await self.raw_tcp()
        async with stream:
            await stream.send_all(request)
            with trio.fail_after(HANG_S):
                answer = b""
                while data := await stream.receive_some():
                    answer += data
        return answer

    async def upgrade_status(self, *headers):
        """HTTP status of a WebSocket request that is refused."""
        lines = [UPGRADE.strip(), *(name + b": " + value for name, value in headers)]
        answer = await self.http(b"\r\n".join(lines) + b"\r\n\r\n")
        return int(answer.split()[1])


class _Started:
    def started(self, value=None):
        pass


@asynccontextmanager
async def world(
    tmp_path: Path, config: GatewayConfig = QUICK, *, approval_s: float = 60.0, files: AttachmentsConfig = FILES
):
    """A running gateway; stopped in order at the end."""
    hub = Hub()
    chats = FakeChats(hub)
    tokens = tmp_path / "tokens.json"
    auth = Authenticator(tokens, recheck_s=0.0)
    listening = trio.Event()
    found = []

    def on_listening(host, port):
        found.append(port)
        listening.set()

    approvals = Approvals(events=hub, clock=SystemClock(), new_id=new_id, wait_s=approval_s, watchers=hub.watchers)
    chats.attachments = Attachments(tmp_path, files, SystemClock())
    services = Services(
        config=config,
        chats=chats,
        hub=hub,
        auth=auth,
        approvals=approvals,
        attachments=chats.attachments,
        clock=SystemClock(),
        perform=chats.perform,
    )
    gateway = Gateway(services, on_listening)
    assert isinstance(gateway.mailbox, Mailbox)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gateway.run, Vitals(SystemClock()), _Started())
        with trio.fail_after(HANG_S):
            await listening.wait()
        yield World(found[0], gateway, hub, chats, tokens, approvals)
        gateway.mailbox.close("test is over")
