"""Questions of tools over real WebSockets: who sees them, who may answer, and what comes again after a reconnect."""

import trio
import trio.testing

from klaw.domain.names import LOCAL_USER, UserId, chat_id
from klaw.gateway.tokens import add_token
from tests.support.gateway_world import world
from tests.support.waiting import HANG_S

MAIN = chat_id(LOCAL_USER, "main")


class Asking:
    """A question that is being asked; ``outcome`` when it has ended."""

    def __init__(self, w, nursery, chat=MAIN, what="[NOT in a sandbox] rm 'старый файл'"):
        self.outcome = None
        self.over = trio.Event()
        nursery.start_soon(self._ask, w, chat, what)

    async def _ask(self, w, chat, what):
        self.outcome = await w.approvals.ask(chat, "host_exec", what, "t1")
        self.over.set()

    async def end(self):
        with trio.fail_after(HANG_S):
            await self.over.wait()
        return self.outcome


async def test_all_who_watch_see_it_and_the_first_answer_counts(tmp_path):
    async with world(tmp_path) as w, trio.open_nursery() as nursery:
        async with w.client(chats={"main": 0}) as one, w.client(chats={"main": 0}) as two, w.client() as elsewhere:
            await one.get("caught_up")
            await two.get("caught_up")
            question = Asking(w, nursery)
            asked = await one.get("approval")
            assert asked == await two.get("approval")
            assert {key: asked[key] for key in ("chat", "tool", "what", "turn")} == {
                "chat": "main",
                "tool": "host_exec",
                "what": "[NOT in a sandbox] rm 'старый файл'",
                "turn": "t1",
            }
            assert asked["until"].endswith("Z")
            # Who does not watch the chat was not shown the question.
            await elsewhere.say("approve", id=asked["id"], allow=True, ref="e1")
            assert (await elsewhere.get("error", ref="e1"))["code"] == "unknown_approval"
            await two.say("approve", id=asked["id"], allow=False, ref="a1")
            ended = {"type": "approval_ended", "chat": "main", "id": asked["id"], "outcome": "denied"}
            assert await one.get("approval_ended") == ended
            assert await two.get("approval_ended", ref="a1") == {**ended, "ref": "a1"}
            await one.say("approve", id=asked["id"], allow=True, ref="late")
            assert (await one.get("error", ref="late"))["code"] == "unknown_approval"
        assert await question.end() == "denied"


async def test_who_comes_later_is_shown_what_is_open(tmp_path):
    async with world(tmp_path) as w, trio.open_nursery() as nursery:
        w.chats.append(LOCAL_USER, "main", "Привет")
        question = Asking(w, nursery)
        async with w.client(chats={"main": 0}) as first:
            asked = await first.get("approval")
        async with w.client(chats={"main": 0}) as again:
            heard = await again.until("approval")
            assert heard[-1] == asked
            assert "caught_up" in [frame["type"] for frame in heard]
            await again.say("approve", id=asked["id"], allow=True)
            await again.get("approval_ended", outcome="allowed")
        async with w.client() as sender:
            assert await question.end() == "allowed"
            # Sending watches a chat from now on: what is open in it is shown then, too.
            other = Asking(w, nursery)
            await trio.testing.wait_all_tasks_blocked(0.05)
            await sender.say("send", id="m1", chat="main", text="hi")
            asked = await sender.get("approval")
            await sender.say("approve", id=asked["id"], allow=True)
            assert await other.end() == "allowed"


async def test_nobody_there_is_no(tmp_path):
    async with world(tmp_path, approval_s=0.05) as w, trio.open_nursery() as nursery:
        assert await Asking(w, nursery).end() == "expired"
        async with w.client(chats={"main": 0}) as late:
            heard = await late.until("status")
            await late.say("call", operation="chats_list")
            heard += await late.until("result")
            assert "approval" not in [frame["type"] for frame in heard]


async def test_nobody_answers_for_another_user(tmp_path):
    async with world(tmp_path) as w, trio.open_nursery() as nursery:
        (_, anna), (_, bob) = (add_token(w.tokens, user, "2026-11-22T12:00:00.000Z") for user in ("anna", "bob"))
        question = Asking(w, nursery, chat_id(UserId("anna"), "main"))
        async with w.client(token=anna, chats={"main": 0}) as hers, w.client(token=bob, chats={"main": 0}) as his:
            asked = await hers.get("approval")
            await his.say("approve", id=asked["id"], allow=True, ref="x")
            heard = await his.until("error", ref="x")
            assert heard[-1]["code"] == "unknown_approval"
            assert "approval" not in [frame["type"] for frame in heard]
            await hers.say("approve", id=asked["id"], allow=False)
            await hers.get("approval_ended", outcome="denied")
            await his.say("call", operation="chats_list")
            assert "approval_ended" not in [frame["type"] for frame in await his.until("result")]
        assert await question.end() == "denied"


async def test_answer_of_a_wrong_form_is_refused(tmp_path):
    async with world(tmp_path) as w, w.client(chats={"main": 0}) as client:
        await client.get("caught_up")
        for fields, named in (
            ({"id": "a1"}, "allow: is required"),
            ({"id": "a1", "allow": "yes"}, "allow: must be true or false"),
            ({"id": "a1", "allow": 1}, "allow: must be true or false"),
            ({"allow": True}, "id: is required"),
        ):
            await client.say("approve", ref="r", **fields)
            error = await client.get("error", ref="r")
            assert (error["code"], error["message"]) == ("bad_frame", named)
        await client.say("approve", id="../x", allow=True, ref="r")
        assert (await client.get("error", ref="r"))["code"] == "bad_id"
