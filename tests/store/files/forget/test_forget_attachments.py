"""Forgetting a message with files: they go from the disk with all that quotes them, unless another message has them."""

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from klaw.actor.clock import SystemClock
from klaw.config.schema import AttachmentsConfig
from klaw.domain.attachment import Attachment, NamedFile, files_of
from klaw.domain.message import Message, Role
from klaw.domain.names import LOCAL_USER, UserId
from klaw.errors import StorageError
from klaw.store.attachments import Attachments
from klaw.store.kinds import attachments, messages
from klaw.store.store import Store
from tests.support.forgetting import forgetter, holding
from tests.support.processes import SCRIPT, completed
from tests.support.reindexing import digests_of
from tests.support.stores import new, running_store

ANNA = UserId("anna")
CANARY = "Kanarienvogel8842"
LINE = f"Пароль от дачи {CANARY}, никому не говори."
DOCUMENT = f"Заметки\n{LINE}\nThe end.".encode()
PNG = b"\x89PNG\r\n\x1a\n" + CANARY.encode() * 50


async def keep(root: Path, name: str, data: bytes, user: UserId = ANNA) -> Attachment:
    async def pieces() -> AsyncIterator[bytes]:
        yield data

    return await Attachments(root, AttachmentsConfig(), SystemClock()).keep(user, name, pieces())


async def send(store: Store, text: str, *files: Attachment, user: UserId = ANNA) -> Message:
    named = [NamedFile(sha256=each.sha256, name=each.name) for each in files]
    (stored,) = await store.writer.run(attachments.append, new(text, user=user), named, AttachmentsConfig())
    return stored.message


async def answer(store: Store, text: str) -> Message:
    (stored,) = await store.writer.run(messages.append, [new(text, user=ANNA, role=Role.ASSISTANT)])
    return stored.message


async def test_nothing_of_the_files_is_left_in_any_file(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        files = await keep(tmp_path, "заметки.txt", DOCUMENT), await keep(tmp_path, "фото.png", PNG)
        message = await send(store, "смотри", *files)
        await answer(store, f"Там написано: {LINE} Верно?")
        other = await send(store, "и ещё", await keep(tmp_path, "b.txt", b"something else"))
        assert holding(tmp_path, CANARY)
        tool = forgetter(store, tmp_path)
        wanted = await tool.find(message.id, ANNA)
        preview = await tool.preview(wanted, everywhere=True)
        told = [(each.kind, each.text, each.goes) for each in preview.things if each.kind == "attachment"]
        assert told == [
            ("attachment", f"заметки.txt text/plain, {len(DOCUMENT)} bytes", True),
            ("attachment", f"фото.png image/png, {len(PNG)} bytes", True),
        ]
        proof = await tool.forget(wanted, everywhere=True)
        assert proof.held == ()
        assert holding(tmp_path, CANARY) == {}
        found = await store.readers.run(messages.after, message.chat, 0, 9)
        assert files_of(found[0].metadata) == ()
        assert CANARY not in found[1].content
        assert [each.name for each in files_of(found[2].metadata)] == ["b.txt"]
        assert found[2] == other
    async with running_store(tmp_path) as store:  # the logs say the same
        assert await store.readers.run(messages.after, message.chat, 0, 9) == found


async def test_a_file_that_another_message_has_stays_whole(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        file = await keep(tmp_path, "заметки.txt", DOCUMENT)
        first, second = await send(store, "вот", file), await send(store, "ещё раз", file)
        tool = forgetter(store, tmp_path)
        wanted = await tool.find(first.id, ANNA)
        (kept,) = [each for each in (await tool.preview(wanted)).things if each.kind == "attachment"]
        assert (kept.goes, kept.remedy) == (False, "another message has it too")
        await tool.forget(wanted)
        (left,) = await store.readers.run(messages.after, first.chat, second.seq - 1, 9)
        assert left == second
        disk = Attachments(tmp_path, AttachmentsConfig(), SystemClock())
        assert await disk.read(ANNA, file.sha256) == DOCUMENT
        await tool.forget(await tool.find(second.id, ANNA), everywhere=True)
        assert holding(tmp_path, CANARY) == {}


async def test_the_same_file_of_another_user_stays(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        mine, theirs = [await keep(tmp_path, "a.txt", DOCUMENT, user) for user in (ANNA, LOCAL_USER)]
        message = await send(store, "моё", mine)
        await send(store, "its mine", theirs, user=LOCAL_USER)
        tool = forgetter(store, tmp_path)
        proof = await tool.forget(await tool.find(message.id, ANNA), everywhere=True)
        assert [each.kind for each in proof.held if each.kind == "attachment"] == []
        assert f"attachments/{theirs.sha256}" in holding(tmp_path, CANARY)
        assert not any(name.startswith("users/") for name in holding(tmp_path, CANARY))


async def test_a_file_that_cannot_be_removed_leaves_everything_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: object, **_kwargs: object) -> None:
        raise PermissionError(1, "not permitted")

    async with running_store(tmp_path) as store:
        message = await send(store, "вот", await keep(tmp_path, "a.txt", DOCUMENT))
        tool = forgetter(store, tmp_path)
        wanted = await tool.find(message.id, ANNA)
        with monkeypatch.context() as patch:
            patch.setattr(os, "unlink", refuse)
            with pytest.raises(StorageError, match="cannot be removed"):
                await tool.forget(wanted)
        assert await store.readers.run(messages.after, message.chat, 0, 9) == [message]
        await tool.forget(wanted, everywhere=True)
    assert holding(tmp_path, CANARY) == {}


async def test_a_rebuilt_database_is_the_same(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        file = await keep(tmp_path, "заметки.txt", DOCUMENT)
        message, _ = await send(store, "вот", file), await send(store, "ещё раз", file)
        tool = forgetter(store, tmp_path)
        await tool.forget(await tool.find(message.id, ANNA))
    before = digests_of(tmp_path / "klaw.db")
    _lose(tmp_path)
    async with running_store(tmp_path):
        pass
    assert digests_of(tmp_path / "klaw.db") == before


_KILLED = """
import os, signal, sys, trio
from pathlib import Path
from tests.store.files.forget.test_forget_attachments import ANNA, DOCUMENT, answer, keep, LINE, send
from tests.support.forgetting import forgetter
from tests.support.stores import running_store
from klaw.store.forget import logs

def killed(*_args):
    os.kill(os.getpid(), signal.SIGKILL)

async def main():
    root = Path(sys.argv[1])
    async with running_store(root) as store:
        message = await send(store, "look", await keep(root, "a.txt", DOCUMENT))
        await answer(store, f"It says: {LINE} Right?")
        logs.begin_cleaning = killed
        tool = forgetter(store, root)
        await tool.forget(await tool.find(message.id, ANNA))

trio.run(main)
"""


async def test_after_a_kill_the_next_start_takes_quotes_of_the_file_out_of_the_logs(tmp_path: Path) -> None:
    done = await completed([*SCRIPT, _KILLED, str(tmp_path)])
    assert done.returncode == -signal.SIGKILL
    assert holding(tmp_path, CANARY)
    async with running_store(tmp_path):
        pass
    assert holding(tmp_path, CANARY) == {}


def _lose(root: Path) -> None:
    for path in root.glob("klaw.db*"):
        path.unlink()
