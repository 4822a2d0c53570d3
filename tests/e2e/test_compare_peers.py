"""``tools/compare_peers.py``: what needs no other environment finds what was said in a small conversation."""

import json
import subprocess
import sys
from typing import Any

import pytest

from tools import compare_peers
from tools.bench_recall import CachedModel

SMALL_TALK = ("ok", "спасибо большое!")
CONVERSATIONS: dict[str, tuple[tuple[str, ...], tuple[tuple[str, int], ...]]] = {
    "en": (
        (
            "Ben: The ferry to the island leaves at half past seven.",
            "Anna: I bought new curtains for the living room yesterday.",
            "Ben: My sister gets a bad rash whenever she has peanuts.",
            "Anna: The football match was cancelled because of heavy rain.",
            "Ben: Our landlord wants to raise the rent in spring.",
            "Anna: I am learning to play the violin this winter.",
        ),
        (("When does the ferry leave?", 0), ("Who must avoid nuts?", 2)),
    ),
    "ru": (
        (
            "Борис: Паром на остров уходит в половине восьмого утра.",
            "Анна: Вчера я купила новые шторы для гостиной.",
            "Борис: У моей сестры сильная сыпь от арахиса.",
            "Анна: Футбольный матч отменили из-за сильного дождя.",
            "Борис: Хозяин квартиры хочет весной поднять плату.",
            "Анна: Этой зимой я учусь играть на скрипке.",
        ),
        (("Во сколько уходит паром?", 0), ("Кому нельзя орехи?", 2)),
    ),
}


@pytest.fixture
def model(embedding_model_dir):
    return CachedModel(embedding_model_dir, None)


@pytest.fixture(params=sorted(CONVERSATIONS))
def folder(request, tmp_path):
    """A folder with one conversation."""
    texts, questions = CONVERSATIONS[request.param]
    made: dict[str, Any] = {
        "name": f"small-{request.param}",
        "language": request.param,
        "messages": [
            {"id": f"m{at}", "role": ("user", "assistant")[at % 2], "ts": f"2026-03-01T10:0{at}:00Z", "content": text}
            for at, text in enumerate(texts)
        ],
        "questions": [{"query": query, "evidence": [f"m{at}"], "category": "one"} for query, at in questions],
    }
    folder = tmp_path / "conversations"
    folder.mkdir()
    (folder / f"small-{request.param}.json").write_text(json.dumps(made), encoding="utf-8")
    return folder


def test_words_find_only_what_shares_one(folder, model, tmp_path):
    found = compare_peers.compare("bm25", sys.executable, folder, SMALL_TALK, model, tmp_path)["small"].summary()
    assert (found["@3"], found["@400"], found["questions"]) == (50.0, 50.0, 2)
    assert found["silence"] is None, "Klaw chose the words"


def test_vectors_beside_words_find_the_rest_and_are_never_silent(folder, model, tmp_path):
    found = compare_peers.compare("rrf", sys.executable, folder, SMALL_TALK, model, tmp_path)["small"].summary()
    assert (found["@3"], found["@400"]) == (100.0, 100.0)
    assert found["silence"] == 0.0


async def test_klaw_is_measured_on_the_same_questions(folder, model, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    found = (await compare_peers.klaw(folder, SMALL_TALK, model, {}, home))["small"].summary()
    assert found["questions"] == 2
    assert found["@3"] >= 50.0, "the one that shares a word"
    assert found["silence"] == 100.0


def test_words_to_look_for_are_bare():
    assert compare_peers.keywords("What is Anna's sister's job, Anna?") == ["Anna", "sister", "job"]
    assert compare_peers.keywords("Как зовут сестру Анны?") == ["зовут", "сестру", "Анны"]


def test_what_does_not_fit_is_left_out_of_the_budget():
    long, short = "word " * 240, "word " * 10
    assert compare_peers.filled([0, 1, 2, 3], [short, long, long, short]) == [0, 1, 3]


def test_a_peer_gets_no_variables_of_the_user(monkeypatch, tmp_path):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-user")
    given = compare_peers.surroundings(tmp_path)
    assert "OPENAI_API_KEY" not in given
    assert given["HOME"] == str(tmp_path)


def test_a_peer_reaches_no_other_machine():
    program = (
        f"import runpy, socket; child = runpy.run_path({str(compare_peers.CHILD)!r})\n"
        "attempts = child['forbid_network']()\n"
        "try: socket.create_connection(('192.0.2.1', 9), timeout=5)\n"
        "except PermissionError: print(attempts)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "192.0.2.1" in done.stdout
