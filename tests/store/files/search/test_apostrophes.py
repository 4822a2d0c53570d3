"""26.C5: words beside an apostrophe are found, whichever was typed, in new and in old indexes."""

import csv
from pathlib import Path

import apsw.fts5
import pytest

from klaw.store import migrations
from klaw.store.engine.tables import index_row, unindex_row
from klaw.store.engine.tokenizer import forms
from klaw.store.search import fulltext
from tests.store.files.migrations.test_migrations import open_with, run_scripts

CASES = Path(__file__).parents[3] / "data" / "cases" / "search_apostrophe.tsv"
BEFORE = 19
"""The last schema whose tokenizer did not."""
MORE = (
    ("O’Brien came", "Brien"), ("O'Brien", "O`Brien"), ("Anna's book", "Anna"), ("Anna’s", "Anna's"),
    ("d'Artagnan", "Artagnan"), ("L'Oréal", "oreal"), ("комп’ютер", "комп'ютер"), ("пʼять", "п`ять"),
    ("Жанна д’Арк", "Арк"), ("О'Генри", "Генри"), ("İstanbul'da", "istanbul"), ("ISIK", "ışık"), ("don’t", "don't"),
    ("аб'ект", "аб’ект"), ("dell´Arte", "arte"), ("`code`", "code"), ("x'y", "y"), ("東京'Tokyo'", "Tokyo"),
)  # fmt: skip


def cases():
    with CASES.open(newline="") as file:
        rows = list(csv.reader(file, delimiter="\t"))[1:]
    return [(message, question) for message, question in (*rows, *MORE)]


def form_set(text):
    return {form for _, _, form in forms(text)}


@pytest.mark.parametrize(("message", "question"), cases())
def test_found(message, question):
    assert form_set(question) <= form_set(message)
    assert all(0 <= start < end <= len(message) for start, end, _ in forms(message))


def test_what_stays_one_word():
    assert [form for _, _, form in forms("don't we'll Anna's об'єднання")] == ["dont", "well", "anna", "обєднан"]


def test_an_old_index_is_made_anew(tmp_path):
    path = tmp_path / "klaw.db"
    old = open_with(path, apsw.fts5.UnicodeWordsTokenizer)  # it parts no words at an apostrophe
    run_scripts(old, 1, BEFORE)
    fields = "rowid, id, user_id, channel, chat_id, seq, role, type, content, metadata, tokens, created_at, segment"
    row = (1, "i", "anna", "websocket", "anna:main", 1, "user", "text", "chez d'Anna", "{}", 1, "x", 0)
    session = "chat_id, user_id, name, created_at, updated_at"
    old.execute(f"INSERT INTO sessions ({session}) VALUES ('anna:main', 'anna', 'main', 'x', 'x')")
    old.execute(f"INSERT INTO messages ({fields}) VALUES ({', '.join('?' * len(row))})", row)
    index_row(old, "messages", 1)
    old.close()
    new = open_with(path)
    anna = fulltext.match_in(["Anna"], None).format(content="content")

    def found():
        return new.execute("SELECT rowid FROM messages_fts WHERE messages_fts MATCH ?", (anna,)).fetchall()

    assert found() == []
    run_scripts(new, BEFORE + 1, migrations.latest())
    assert found() == [(1,)]
    unindex_row(new, "messages", 1)
    new.execute("INSERT INTO messages_fts (messages_fts) VALUES ('integrity-check')")
