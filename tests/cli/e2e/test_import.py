"""`klaw import` and `klaw export` as processes: beside a server and without one, killed in the middle, undone."""

import json
import signal
import subprocess
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import apsw
import trio

from klaw.store import attachments
from tests.imports.files.test_files_of_exports import NOTE, PICTURE, of_chatgpt
from tests.support.exports import chatgpt_export, talk, zipped
from tests.support.forgetting import holding
from tests.support.forks import Fork
from tests.support.llm_server import serve_llm
from tests.support.processes import start_silent
from tests.support.server import clean_environ, klaw_command, run_klaw, served, write_home
from tests.support.stores import running_store
from tests.support.talking import talking
from tests.support.waiting import HANG_S, until

SECRET = "Ключ от сейфа называется Kanarienvogel8842, запомни это"
CHATS, EACH = 12, 120
EXPORTED = ("bases", "facts", "people", "sources", "summaries", "tasks", "topics")


def large(folder: Path) -> Path:
    """An export of just now: its questions are younger than those that a start answers."""
    now = time.time()
    chats = [
        talk(f"c{chat}", f"Сад {chat}", *(f"said {chat} {n}, сказано в саду" for n in range(EACH)), at=now)
        for chat in range(CHATS)
    ]
    return chatgpt_export(folder, *chats)


def stored(database: Path) -> Counter[str]:
    """How often each message is there."""
    with closing(apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        rows = connection.execute("SELECT content FROM messages WHERE channel GLOB 'import:*'")
        return Counter(content for (content,) in rows)


async def begin(home: Path, path: Path) -> trio.Process | Fork:
    return await start_silent(klaw_command("import", "chatgpt", str(path), "--home", str(home)), clean_environ())


async def test_killed_in_the_middle_and_imported_again(tmp_path: Path) -> None:
    """The command, and the server under it: nothing is lost, nothing is there twice, and no model is asked."""
    home, path = tmp_path / "home", large(tmp_path)
    where = ("--home", str(home))
    async with serve_llm() as llm, served(write_home(home, llm=llm.url)) as server:
        importing = await begin(home, path)
        await until(lambda: stored(server.database))
        importing.kill()
        await importing.wait()
        importing = await begin(home, path)
        before = stored(server.database).total()
        await until(lambda: stored(server.database).total() > before or importing.returncode is not None)
        await server.kill()
        with trio.fail_after(HANG_S):
            await importing.wait()
        await server.start()
        code, out, err = await run_klaw("import", "chatgpt", str(path), "--json", *where)
        assert code == 0, err
        answer = json.loads(out)
        assert (answer["chats"], answer["messages"]) == (CHATS, CHATS * EACH)
        assert answer["added"] + answer["known"] == CHATS * EACH
        found = stored(server.database)
        assert (len(found), set(found.values())) == (CHATS * EACH, {1})
        code, out, err = await run_klaw("import", "chatgpt", str(path), "--json", *where)
        assert (code, json.loads(out)["added"]) == (0, 0), err
        await server.kill()
        await server.start()
        assert llm.requests == []
        async with talking(server.url) as at:
            await at.ask("What did I say?", chat="Сад 3")
        assert len(llm.requests) == 1


async def test_a_dry_run_an_import_its_list_and_undo(tmp_path: Path) -> None:
    home = tmp_path / "home"
    where = ("--home", str(home))
    path = chatgpt_export(tmp_path, talk("c1", "Сейф", "Where is it?", SECRET), {"bad": 1}, name="1.zip")
    with_files = of_chatgpt(tmp_path)
    async with serve_llm() as llm, served(write_home(home, llm=llm.url)) as server:
        code, out, err = await run_klaw("import", "chatgpt", str(path), "--dry-run", *where)
        assert code == 0
        assert "2 messages in 1 chat, 2023-11-14 22:13 to 2023-11-14 22:13\nnothing was stored\n" in out
        assert err == "klaw: NOT read: conversations.json, chat 2: is not a ChatGPT conversation (KeyError)\n"
        assert stored(server.database).total() == 0
        with path.open("rb") as file:  # of somebody whose files the server's user may not read
            done = await trio.run_process(
                [*klaw_command("import", "chatgpt", "-", "--dry-run", *where)],
                stdin=file,
                capture_stdout=True,
                check=False,
            )
        assert (done.returncode, b"2 messages in 1 chat" in done.stdout) == (0, True)
        code, out, err = await run_klaw("import", "chatgpt", "-", *where, stdin=path.read_bytes())
        assert (code, "is not a file" in err) == (1, True)
        code, out, err = await run_klaw("import", "chatgpt", str(path), *where)
        assert (code, "2 added, 0 were here already" in out) == (0, True), err
        code, out, err = await run_klaw("search", "Kanarienvogel8842", *where)
        assert (code, "Kanarienvogel8842" in out) == (0, True), err
        code, out, err = await run_klaw("import", "list", "--json", *where)
        (found,) = json.loads(out)["imports"]
        assert (found["chats"], found["messages"]) == (1, 2)
        code, out, err = await run_klaw("import", "undo", found["id"], "--dry-run", *where)
        assert (code, "would be forgotten" in out, bool(holding(home, SECRET))) == (0, True, True), err
        code, out, err = await run_klaw("import", "undo", found["id"], "--yes", *where)
        assert (code, "a search of all files finds its words nowhere" in out) == (0, True), err
        assert holding(home, SECRET, "Kanarienvogel8842") == {}
        code, out, err = await run_klaw("import", "undo", found["id"], "--yes", *where)
        assert (code, "there is no such import" in err) == (1, True)
        code, out, err = await run_klaw("import", "chatgpt", str(with_files), *where)
        assert (code, f"2 files of them, {len(PICTURE) + len(NOTE):,} bytes" in out) == (0, True), err
        assert len(attachments.sent(home / "data")) == 2
        for bad, why in (
            ("gone.zip", "cannot be read: No such file or directory"),
            (str(zipped(tmp_path / "x.zip", a__txt="x")), "there is no conversations.json in it"),
        ):
            code, out, err = await run_klaw("import", "chatgpt", bad, *where)
            assert (code, why in err) == (1, True)
        await server.kill()
    code, out, err = await run_klaw("import", "chatgpt", str(path), "--json", *where)
    assert (code, json.loads(out)["added"]) == (0, 2), err
    code, out, err = await run_klaw("import", "list", *where)
    assert (code, "chatgpt-" in out) == (0, True), err
    code, out, err = await run_klaw("import", "chatgpt", str(with_files), "--user", "anna", *where)
    assert (code, len(attachments.sent(home / "data"))) == (0, 4), err


async def test_without_a_server_an_error_is_one_line_and_an_interrupt_none(tmp_path: Path) -> None:
    home, path = write_home(tmp_path / "home"), large(tmp_path)
    async with running_store(home / "data"):
        pass
    where = ("--home", str(home))
    chat = tmp_path / "_chat.txt"
    chat.write_text("05.03.24, 11:00 - Анна: x\n")
    code, out, err = await run_klaw("import", "whatsapp", str(chat), *where)
    assert (code, err.splitlines()[-1:]) == (1, ["klaw: _chat.txt: who are you? Give --me NAME; in it are Анна"])
    assert "Traceback" not in err
    command = klaw_command("import", "chatgpt", str(path), *where)
    importing = await trio.lowlevel.open_process(command, env=clean_environ(), stdout=-3, stderr=subprocess.PIPE)
    await until(lambda: stored(home / "data" / "klaw.db"))
    importing.send_signal(signal.SIGINT)
    assert importing.stderr is not None
    with trio.fail_after(HANG_S):
        said = b"".join([each async for each in importing.stderr])
        assert (await importing.wait() in (130, 0), b"Traceback" in said) == (True, False)  # 0: it was done before
    code, out, err = await run_klaw("import", "chatgpt", str(path), "--json", *where)
    answer = json.loads(out)
    assert (code, answer["added"] + answer["known"]) == (0, CHATS * EACH), err
    found = stored(home / "data" / "klaw.db")
    assert (len(found), set(found.values())) == (CHATS * EACH, {1})


async def test_an_export_is_read_back_into_another_home(tmp_path: Path) -> None:
    home, other, folder = tmp_path / "home", tmp_path / "other", tmp_path / "выход"
    async with serve_llm() as llm, served(write_home(home, llm=llm.url)) as server:
        async with talking(server.url) as at:
            await at.ask("Hello *there*")
            await at.ask(SECRET, chat="сад")
            await at.ask("And now?", chat="сад")
            await at.ask("Of another one", chat="Main")
        where = ("--home", str(home))
        task = ("water", "--every", "1d", "--inject-into", "сад", "--message", "What is dry?")
        assert (await run_klaw("schedule", "add", *task, *where))[0] == 0
        assert (await run_klaw("schedule", "run", "water", *where))[0] == 0

        async def delivered() -> bool:
            _, out, _ = await run_klaw("runs", "--status", "done", "--json", *where)
            return bool(json.loads(out)["runs"])

        await until(delivered)
        assert (await run_klaw("chats", "rename", "сад", "Дача и сейф", *where))[0] == 0
        for words in (
            ("facts", "add", "Likes _tea_ with lemon"),
            ("facts", "add", "Аня живёт в Берлине", "--category", "person", "--importance", "80"),
            ("people", "add", "Анна Петрова", "--alias", "Аня", "--alias", "Anna", "--relation", "сестра"),
            ("people", "add", "Bob"),
        ):
            code, out, err = await run_klaw(*words, *where)
            assert code == 0, err
        code, out, err = await run_klaw("export", "--to", str(folder), *where)
        assert code == 0, err
        lists = {f"{name}.{ending}" for name in EXPORTED for ending in ("json", "md")}
        assert {each.name for each in folder.iterdir()} == {"chats", *lists}
        names = sorted(each.name for each in (folder / "chats").iterdir())
        main = names[2].removesuffix(".json")  # not the same on a stick that knows no capital letters
        assert names == ["Main.json", "Main.md", f"{main}.json", f"{main}.md", "сад.json", "сад.md"]
        assert main.startswith("main~")
        assert SECRET in (folder / "chats" / "сад.md").read_text()
        assert {oct(each.stat().st_mode & 0o777) for each in folder.rglob("*.*")} == {"0o600"}
        code, out, err = await run_klaw("export", "--to", str(folder), *where)
        assert (code, "is not empty" in err) == (2, True), err
        code, out, err = await run_klaw("import", "klaw", str(folder), "--json", *where)
        assert (code, json.loads(out)["added"], json.loads(out)["remembered"]) == (0, 0, 0), err
    async with serve_llm() as llm, served(write_home(other, llm=llm.url)) as server:
        where = ("--home", str(other))
        code, out, err = await run_klaw("import", "klaw", str(folder), "--dry-run", *where)
        assert (code, "2 facts, 2 people, 1 task\n" in out) == (0, True), err
        code, out, err = await run_klaw("import", "klaw", str(folder), *where)
        assert (code, "2 facts, 2 people, 1 task: 5 added, 0 were here before" in out) == (0, True), err
        assert "do not run until you enable them" in out
        code, out, err = await run_klaw("import", "klaw", str(folder), *where)
        assert (code, "0 added, 5 were here before" in out, "enable" in out) == (0, True, False), err
        code, out, err = await run_klaw("facts", "list", *where)
        assert (code, out.count("import:klaw-"), "Аня живёт в Берлине" in out) == (0, 2, True), err
        code, out, err = await run_klaw("people", "show", "аня", *where)
        assert (code, "import:klaw-" in out) == (0, True), err
        again = tmp_path / "again"
        code, out, err = await run_klaw("schedule", "list", *where)
        assert (code, "water" in out, "disabled" in out, "сад" in out) == (0, True, True, True), err
        assert (await run_klaw("export", "--to", str(again), *where))[0] == 0
        for name in ("Main", main, "сад"):
            one, two = (json.loads((each / "chats" / f"{name}.json").read_text()) for each in (folder, again))
            assert one == two
        for name in ("facts.json", "people.json"):
            one, two = (json.loads((each / name).read_text()) for each in (folder, again))
            assert [{**each, "imported": None} for each in two] == one
            assert len(one) == 2
        assert llm.requests == []
