"""Invariant resume: a client that comes back is sent what it missed, each message once and in order."""

import json
import random
from contextlib import suppress

import trio

from tests.support.llm_server import Pause, Reply, Text, serve_llm
from tests.support.server import served, write_home
from tests.support.talking import bare_socket, talking
from tests.support.waiting import HANG_S


class Relay:
    """Stands between clients and server, and can cut all their connections without a word."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._open: set[trio.SocketStream] = set()
        self.cuts = 0
        self.url = ""

    async def serve(self, task_status: trio.TaskStatus[None]) -> None:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.url = f"ws://127.0.0.1:{listeners[0].socket.getsockname()[1]}/ws"
        task_status.started()
        await trio.serve_listeners(self._relay, listeners)

    async def cut(self) -> None:
        self.cuts += len(self._open)
        for stream in list(self._open):
            await trio.aclose_forcefully(stream)

    async def _relay(self, client: trio.SocketStream) -> None:
        try:
            server = await trio.open_tcp_stream("127.0.0.1", self._target_port)
        except OSError:
            await trio.aclose_forcefully(client)
            return
        self._open.add(client)
        async with client, server, trio.open_nursery() as nursery:
            nursery.start_soon(self._pump, client, server, nursery.cancel_scope)
            nursery.start_soon(self._pump, server, client, nursery.cancel_scope)
        self._open.discard(client)

    async def _pump(self, source: trio.SocketStream, sink: trio.SocketStream, scope: trio.CancelScope) -> None:
        try:
            async for data in source:
                await sink.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        scope.cancel(reason="one side is gone")


async def _come_and_go(url, name, chance, seen, sent, stop):
    """A client that writes, leaves after a few messages, and comes back with its position, until ``stop``."""
    while not stop.is_set():
        async with talking(url, {"main": seen[-1].seq if seen else 0}) as talk:
            for _ in range(chance.randint(1, 6)):
                sent.append(f"{name}-{len(sent)}")
                await talk.send(f"{sent[-1]}: слово word", message_id=sent[-1])
            seen += talk.entries


async def _watch_without_mercy(url, seqs, heads, watched):
    """A client that mends nothing: it says what it has, and notes every ``seq`` that the server sends. Sets
    ``watched`` when it has the message that ``heads`` names, once that is known."""
    while not heads or seqs[-1] < heads[0]:
        with suppress(OSError):
            async with bare_socket(url, handshake_s=3.0) as socket:
                hello = {"type": "hello", "version": 2, "chats": {"main": seqs[-1] if seqs else 0}}
                await socket.send_message(json.dumps(hello))
                while True:
                    frame = json.loads(await socket.get_message())
                    if frame["type"] == "message":
                        seqs.append(frame["seq"])
                    if heads and seqs[-1] >= heads[0]:
                        break
        await trio.sleep(0.02)  # between two attempts to connect
    watched.set()


async def test_resume_shows_two_clients_each_message_once_in_order(tmp_path):
    """Two clients of one chat leave, are cut off, and live through restarts by SIGTERM and SIGKILL."""
    chance = random.Random(4711)
    async with serve_llm() as llm, served(write_home(tmp_path, llm=llm.url)) as server, trio.open_nursery() as nursery:
        llm.respond = lambda _request: Reply(steps=(Text("well"), Pause(0.01), Text(", так")))
        relay = Relay(server.config["gateway"]["port"])
        await nursery.start(relay.serve)
        seen, sent, stop = ([], []), ([], []), trio.Event()
        bare, heads, watched = [], [], trio.Event()
        nursery.start_soon(_watch_without_mercy, relay.url, bare, heads, watched)
        async with talking(relay.url, {"main": 0}) as faithful, trio.open_nursery() as people:
            for number in (0, 1):
                arguments = (f"p{number}", random.Random(number), seen[number], sent[number], stop)
                people.start_soon(_come_and_go, relay.url, *arguments)
            for ending in (server.terminate, relay.cut, server.kill, relay.cut, server.terminate, server.kill):
                enough = len(faithful.entries) + 30
                await faithful.until(lambda enough=enough: len(faithful.entries) >= enough)
                with trio.move_on_after(chance.uniform(0, 0.05)):  # any moment will do
                    await trio.sleep_forever()
                await ending()
                if not server.running:
                    await server.start()
            stop.set()
        async with talking(server.url, {"main": 0}) as late:
            last = await late.send("the end")
            await late.settled(last)
            history = await late.history()
            await late.until(lambda: late.entries and late.entries[-1].seq == history[-1].seq)
            for number in (0, 1):
                async with talking(server.url, {"main": seen[number][-1].seq}) as back:
                    await back.until(lambda back=back: back.entries and back.entries[-1].seq == history[-1].seq)
                    seen[number].extend(back.entries)
            heads.append(history[-1].seq)
            await relay.cut()  # so that the bare client, if it has it all, looks at that
            with trio.fail_after(HANG_S):
                await watched.wait()
        nursery.cancel_scope.cancel()
    stored = [(message.seq, message.id, message.content) for message in history]
    assert [seq for seq, *_ in stored] == list(range(1, len(stored) + 1))
    assert bare == list(range(1, len(stored) + 1)), "the server itself sent a hole, a repetition or another order"
    for who in (late.entries, *seen):
        assert [(entry.seq, entry.id, entry.content) for entry in who] == stored
    mine = [(entry.seq, entry.id, entry.content) for entry in faithful.entries]
    assert mine == stored[: len(mine)], "the client that never left saw a hole, a repetition or another order"
    ids = [message.id for message in history if message.role == "user"]
    assert sorted(ids[:-1]) == sorted(sent[0] + sent[1]), "each message is stored exactly once"
    assert relay.cuts > 0
