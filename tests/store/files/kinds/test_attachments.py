"""Files of messages on a real disk and in a real store: durable, of one user only, within the limits, no links."""

import hashlib
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio

from klaw.actor.clock import SystemClock
from klaw.config.schema import AttachmentsConfig
from klaw.domain.attachment import Attachment, NamedFile, files_of
from klaw.domain.message import Message
from klaw.domain.names import UserId
from klaw.errors import AttachmentRefused, StorageFull, TooMuchToday
from klaw.store import attachments as on_disk
from klaw.store.attachments import UNSENT_S, Attachments
from klaw.store.kinds import attachments, messages
from klaw.store.store import Store
from tests.support.processes import SCRIPT, completed
from tests.support.stores import new, running_store

LOCAL, ANNA = UserId("local"), UserId("Анна")
LIMITS = AttachmentsConfig()
PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)
TEXT = "Договор аренды: квартира на Лесной, 40 000 рублей в месяц.".encode()


class Pieces:
    """Bytes as they come over a wire."""

    def __init__(self, data: bytes) -> None:
        self._left = data

    def __aiter__(self) -> "Pieces":
        return self

    async def __anext__(self) -> bytes:
        await trio.lowlevel.checkpoint()
        if not self._left:
            raise StopAsyncIteration
        piece, self._left = self._left[:7], self._left[7:]
        return piece


def keeper(root: Path, limits: AttachmentsConfig = LIMITS) -> Attachments:
    return Attachments(root, limits, SystemClock())


async def keep(root: Path, data: bytes, name: str = "a.txt", user: UserId = LOCAL) -> Attachment:
    return await keeper(root).keep(user, name, Pieces(data))


async def send(store: Store, *files: Attachment, user: UserId = LOCAL, text: str = "смотри") -> Message:
    named = [NamedFile(sha256=each.sha256, name=each.name) for each in files]
    message = new(text, user=user)
    (stored,) = await store.writer.run(attachments.append, message, named, LIMITS)
    return stored.message


def logged(root: Path) -> Any:
    """The only line of a conversation."""
    (log,) = root.glob("conversations/**/*.jsonl")
    return json.loads(log.read_text())


def lose_database(root: Path) -> None:
    for path in root.glob("klaw.db*"):
        path.unlink()


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


@pytest.mark.parametrize(
    ("user", "folder"), [(LOCAL, "attachments"), (ANNA, "users/%D0%90%D0%BD%D0%BD%D0%B0/attachments")]
)
async def test_a_file_is_kept_by_its_digest_under_its_users_folder(tmp_path: Path, user: UserId, folder: str) -> None:
    kept = await keep(tmp_path, PNG, "../фото из Крыма.png", user)
    digest = hashlib.sha256(PNG).hexdigest()
    assert kept == Attachment(sha256=digest, name="фото из Крыма.png", type="image/png", bytes=len(PNG))
    assert names(tmp_path / folder) == [f"{digest}.new"]
    assert (tmp_path / folder / f"{digest}.new").stat().st_mode & 0o777 == 0o600
    assert await keeper(tmp_path).read(user, digest) == PNG
    assert await keeper(tmp_path).read(user, digest, 3, 5) == PNG[3:8]
    assert await keeper(tmp_path).read(user, digest, len(PNG) + 5, 5) == b""
    assert await keeper(tmp_path).find(user, digest, "x/y.png") == Attachment(
        sha256=digest, name="y.png", type="image/png", bytes=len(PNG)
    )


async def test_a_message_refers_to_its_files_in_the_database_and_in_the_log(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        photo, contract = await keep(tmp_path, PNG, "a.png"), await keep(tmp_path, TEXT, "договор.txt")
        message = await send(store, photo, contract)
        assert [each.name for each in files_of(message.metadata)] == ["a.png", "договор.txt"]
        assert files_of(message.metadata)[1].text == TEXT.decode()
        assert files_of(message.metadata)[0].text == ""
        (read,) = await store.readers.run(messages.after, message.chat, 0, 9)
        assert read == message
    assert logged(tmp_path)["metadata"] == message.metadata
    assert names(tmp_path / "attachments") == sorted([photo.sha256, contract.sha256])


async def test_a_reindex_gives_the_files_of_messages_back(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        message = await send(store, await keep(tmp_path, TEXT, "договор.txt"))
    lose_database(tmp_path)
    async with running_store(tmp_path) as store:
        (read,) = await store.readers.run(messages.after, message.chat, 0, 9)
        assert read == message
        assert await keeper(tmp_path).read(LOCAL, files_of(read.metadata)[0].sha256) == TEXT


async def test_another_users_file_is_not_found(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        sent, unsent = await keep(tmp_path, PNG), await keep(tmp_path, TEXT)
        await send(store, sent)
        for theirs in (sent, unsent):
            with pytest.raises(AttachmentRefused, match="you have no such file") as refused:
                await send(store, theirs, user=ANNA)
            assert refused.value.code == "unknown_file"
            with pytest.raises(AttachmentRefused) as missing:
                await keeper(tmp_path).read(ANNA, theirs.sha256)
            assert str(missing.value) == str(refused.value)
        assert await store.readers.run(messages.session, new(user=ANNA).chat) is None
        own = await keep(tmp_path, PNG, user=ANNA)
        assert files_of((await send(store, own, user=ANNA)).metadata)[0].sha256 == sent.sha256


@pytest.mark.parametrize("sha256", ["../klaw.db", "0" * 63, "0" * 64, "A" * 64, "", "x" * 64, "/etc/passwd"])
async def test_what_is_no_digest_of_a_file_is_not_found(tmp_path: Path, sha256: str) -> None:
    with pytest.raises(AttachmentRefused):
        await keeper(tmp_path).read(LOCAL, sha256)


async def test_no_link_is_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_bytes(TEXT)
    digest = hashlib.sha256(TEXT).hexdigest()
    (tmp_path / "attachments").mkdir()
    (tmp_path / "attachments" / digest).symlink_to(secret)
    with pytest.raises(StorageFull):
        await keeper(tmp_path).read(LOCAL, digest)
    await keep(tmp_path, TEXT)  # the link is not taken for the file
    assert not (tmp_path / "attachments" / f"{digest}.new").is_symlink()
    secret.unlink()
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "users").mkdir()
    (tmp_path / "users" / "bob").symlink_to(outside)
    with pytest.raises(StorageFull):
        await keep(tmp_path, TEXT, user=UserId("bob"))
    assert names(outside) == []


async def test_each_limit_is_named(tmp_path: Path) -> None:
    limited = keeper(tmp_path, AttachmentsConfig(max_file_bytes=100, max_user_bytes=16_400))
    with pytest.raises(AttachmentRefused, match=r"100 bytes.*attachments\.maxFileBytes"):
        await limited.keep(LOCAL, "a", Pieces(bytes(101)))
    await limited.keep(LOCAL, "a", Pieces(b"a" * 90))
    with pytest.raises(AttachmentRefused, match=r"16,400 bytes.*attachments\.maxUserBytes"):
        await limited.keep(LOCAL, "b", Pieces(b"b" * 61))
    await limited.keep(ANNA, "b", Pieces(b"b" * 61))
    with pytest.raises(AttachmentRefused, match="empty"):
        await limited.keep(LOCAL, "c", Pieces(b""))
    assert len(names(tmp_path / "attachments")) == 1  # no draft is left
    async with running_store(tmp_path) as store:
        two = [NamedFile(sha256=(await keep(tmp_path, data)).sha256) for data in (PNG, TEXT)]
        few = AttachmentsConfig(max_message_bytes=150)
        with pytest.raises(AttachmentRefused, match=r"150 bytes.*attachments\.maxMessageBytes"):
            await store.writer.run(attachments.append, new("hi"), two, few)
        assert all(name.endswith(".new") for name in names(tmp_path / "attachments"))


async def test_a_repeated_message_is_stored_once_whatever_became_of_its_file(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        kept = await keep(tmp_path, PNG)
        message = new("смотри", id="m1")
        (first,) = await store.writer.run(attachments.append, message, [NamedFile(sha256=kept.sha256)], LIMITS)
        on_disk.remove(tmp_path, LOCAL, kept.sha256)
        (again,) = await store.writer.run(attachments.append, message, [NamedFile(sha256=kept.sha256)], LIMITS)
        assert again.repeated
        assert again.message == first.message


async def test_what_was_never_sent_is_removed_after_a_day_and_what_was_sent_never(tmp_path: Path) -> None:
    async with running_store(tmp_path) as store:
        sent, old, fresh = [await keep(tmp_path, data, user=ANNA) for data in (PNG, TEXT, b"fresh")]
        await send(store, sent, user=ANNA)
        folder = tmp_path / "users/%D0%90%D0%BD%D0%BD%D0%B0/attachments"
        now = SystemClock().now()
        for name in (sent.sha256, f"{old.sha256}.new"):
            os.utime(folder / name, (now - UNSENT_S - 5, now - UNSENT_S - 5))
        assert on_disk.sweep(tmp_path, now - UNSENT_S) == 1
        assert names(folder) == sorted([sent.sha256, f"{fresh.sha256}.new"])
        os.utime(folder / f"{fresh.sha256}.new", (1, 1))
        await keep(tmp_path, b"fresh", user=ANNA)  # uploaded again: another day
        assert on_disk.sweep(tmp_path, now - UNSENT_S) == 0
        with pytest.raises(AttachmentRefused):
            await send(store, old, user=ANNA)


async def test_a_broken_upload_leaves_nothing(tmp_path: Path) -> None:
    begun: list[str] = []

    async def endless() -> AsyncIterator[bytes]:
        yield b"x"
        begun.extend(names(tmp_path / "attachments"))
        scope.cancel()
        await trio.sleep_forever()

    with trio.CancelScope() as scope:
        await keeper(tmp_path).keep(LOCAL, "a", endless())
    assert scope.cancelled_caught
    assert len(begun) == 1
    assert names(tmp_path / "attachments") == []


_UPLOADER = """
import os, signal, sys, trio
from pathlib import Path
from klaw.actor.clock import SystemClock
from klaw.config.schema import AttachmentsConfig
from klaw.store.attachments import Attachments

async def pieces():
    yield b"what was uploaded"

async def main():
    keeper = Attachments(Path(sys.argv[1]), AttachmentsConfig(), SystemClock())
    kept = await keeper.keep("local", "a.txt", pieces())
    draft = await keeper.begin("local", "b.txt")
    await keeper.in_thread(draft.add, b"half of an upload")
    print(kept.sha256, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

trio.run(main)
"""


async def test_a_kill_between_upload_and_send_loses_nothing(tmp_path: Path) -> None:
    done = await completed([*SCRIPT, _UPLOADER, str(tmp_path)])
    assert done.returncode == -signal.SIGKILL
    sha256 = done.stdout.decode().strip()
    async with running_store(tmp_path) as store:
        stored = await store.writer.run(attachments.append, new("hi"), [NamedFile(sha256=sha256)], LIMITS)
        assert files_of(stored[0].message.metadata)[0].text == "what was uploaded"
    assert len(names(tmp_path / "attachments")) == 2  # with the draft
    assert on_disk.sweep(tmp_path, SystemClock().now() + 1) == 1
    assert names(tmp_path / "attachments") == [sha256]


async def test_the_limit_of_a_day_begins_anew_at_midnight_and_is_of_each_user(tmp_path: Path) -> None:
    evening, midnight = 1_764_115_199.0, 1_764_115_200.0  # 25 and 26 November 2025, UTC

    async with running_store(tmp_path) as store:

        async def stored(user: str, at: float) -> bool:
            message = new("ж" * 1_000, user=user, at=at)
            try:
                await store.writer.run(attachments.append_plain, message, 5_000)
            except TooMuchToday:
                return False
            return True

        assert [await stored("Анна", evening) for _ in range(3)] == [True, True, False]
        assert await stored("local", evening)
        assert [await stored("Анна", midnight) for _ in range(3)] == [True, True, False]
        kept = await store.readers.run(messages.after, new(user="Анна").chat, 0, 10)
        assert len(kept) == 4
