"""A real SearXNG: Debian's searx, with one engine that searches a small database of its own and no network."""

import os
import shutil
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from klaw.toolbox.web_search import find_searxng
from tests.support.processes import start_silent
from tests.support.server import free_port
from tests.support.waiting import HANG_S, until

PROGRAM = "/usr/bin/searx-run"
_SETTINGS = """
general: {{instance_name: Test}}
search: {{safe_search: 0, autocomplete: "", default_lang: en, formats: [html, json]}}
server: {{port: {port}, bind_address: 127.0.0.1, secret_key: test, base_url: false, image_proxy: false}}
ui: {{static_path: {share}/static, templates_path: {share}/templates, default_theme: oscar, default_locale: en}}
outgoing: {{request_timeout: 2.0, useragent_suffix: ""}}
doi_resolvers: {{doi.example: "https://doi.example/"}}
default_doi_resolver: doi.example
locales: {{en: English}}
engines:
  - name: shelf
    engine: sqlite
    shortcut: sh
    categories: general
    database: {database}
    query_str: SELECT title, url, content FROM pages WHERE content LIKE '%' || :query || '%'
"""


@asynccontextmanager
async def searxng(folder: Path, rows: Sequence[tuple[str, str, str]]) -> AsyncIterator[int]:
    """Its port. It finds rows (title, address, content) by a part of the content. Skips where none is installed."""
    if shutil.which(PROGRAM) is None:
        pytest.skip("needs Debian's searx: apt-get install searx")
    port, database = free_port(), folder / "shelf.db"
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE pages (title, url, content)")
        connection.executemany("INSERT INTO pages VALUES (?, ?, ?)", rows)
    settings, share = folder / "searx.yml", "/usr/share/python3-searx"
    settings.write_text(_SETTINGS.format(port=port, share=share, database=database))
    environ = {**os.environ, "SEARX_SETTINGS_PATH": str(settings), "PYTHONPATH": ""}
    process = await start_silent(["/usr/bin/python3", PROGRAM], environ)
    try:
        with trio.fail_after(HANG_S):
            await until(lambda: find_searxng([port]))
        yield port
    finally:
        process.kill()
        with trio.move_on_after(HANG_S, shield=True):
            await process.wait()
