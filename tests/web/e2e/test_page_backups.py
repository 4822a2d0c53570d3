"""Backups on the page: made, downloaded, and restored from the download."""

import httpx2
import pytest
import trio

from klaw.gateway.tokens import add_token, tokens_file
from tests.support.browser import in_browser, needs_chromium
from tests.support.llm_server import serve_llm, text_reply
from tests.support.server import run_klaw, served, write_home
from tests.support.waiting import HANG_S
from tests.web.e2e.test_page import base, begin_chat, say
from tests.web.e2e.test_page_languages import WIDE
from tests.web.e2e.test_page_system import log_in

pytestmark = needs_chromium
SECRET = "The code of the gate is Kanarienvogel8842"


@pytest.mark.parametrize(("locale", "none"), [("en-GB", "none yet"), ("ru-RU", "ещё не было")])
async def test_a_backup_is_made_downloaded_and_restored(tmp_path, locale, none):
    home, archive = tmp_path / "home", tmp_path / "backup.tar"

    def look(page, wrong):
        log_in(page, root)
        begin_chat(page, "main")
        say(page, SECRET)
        page.wait_for_selector("article.assistant")
        page.evaluate("location.hash = '#/system'")
        page.wait_for_selector(f"klaw-system dd:text-is('{none}')")
        page.click("klaw-system [href='#/backups']")
        page.click("klaw-backups button.main")
        page.wait_for_selector("klaw-backups li a")
        page.wait_for_selector("klaw-backups button.main:enabled")
        assert page.evaluate(WIDE) == []
        with page.expect_download() as download:
            page.click("klaw-backups li a")
        download.value.save_as(archive)
        page.evaluate("location.hash = '#/system'")
        page.wait_for_selector("klaw-system dt")
        assert page.locator(f"klaw-system dd:text-is('{none}')").count() == 0
        assert wrong == []

    async with serve_llm() as llm:
        llm.respond = lambda _: text_reply("Noted.")
        write_home(home, llm=llm.url)
        (home / "workspace").mkdir()
        (home / "workspace" / "notes.md").write_text("x" * 700_000)
        (home / "workspace" / "link.md").symlink_to("notes.md")
        _, root = add_token(tokens_file(home / "config"), "root", "2026-01-01T00:00:00Z", operator=True)
        _, anna = add_token(tokens_file(home / "config"), "anna", "2026-01-01T00:00:00Z")
        async with served(home) as server:
            await in_browser(look, base(server), locale=locale, viewport={"width": 360, "height": 740})
            (made,) = (each.name for each in (home / "backups").iterdir() if not each.name.startswith("."))
            await refused(server, anna, f"/api/v1/backup/{made}/archive", 403)
            await refused(server, root, "/api/v1/backup/..%2Fconfig/archive", 404)
            await refused(server, root, "/api/v1/backup/2020-01-01T00-00-00Z/archive", 404)
    (tmp_path / "unpacked").mkdir()
    await trio.run_process(["tar", "xf", archive, "-C", tmp_path / "unpacked"])
    there = ("--from", str(tmp_path / "unpacked"))
    code, out, err = await run_klaw("backup", "verify", *there, "--home", str(home))
    assert code == 0, out + err
    code, out, err = await run_klaw("backup", "restore", *there, "--home", str(tmp_path / "other"))
    assert code == 0, out + err
    assert any(SECRET in path.read_text() for path in (tmp_path / "other" / "data").rglob("*.jsonl"))
    assert (tmp_path / "other" / "workspace" / "link.md").readlink().name == "notes.md"


async def refused(server, token, path, status):
    async with httpx2.AsyncClient(base_url=base(server), timeout=HANG_S, trust_env=False) as client:
        answer = await client.get(path, headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == status, answer.text
