"""The same questions to the embedded store, and to the endpoints of rdflib and of Comunica over the same file: the same
answers.

Comunica runs where it is installed (``npm install -g @comunica/query-sparql-file``); ``COMUNICA`` names its program
``comunica-sparql-file-http`` where that is not on the path.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from klaw.config.tools import EndpointConfig
from klaw.domain.knowledge import SourceKind
from klaw.errors import GraphError
from klaw.knowledge.graph.graphs import Graphs
from tests.support.graphs import PEOPLE, file_source, graphs, source
from tests.support.repository import REPOSITORY
from tests.support.server import free_port
from tests.support.waiting import HANG_S, until

COMUNICA = os.environ.get("COMUNICA") or shutil.which("comunica-sparql-file-http")
QUESTIONS = {
    "Where was Marie Curie born?": "Marie Curie — birthplace: Warsaw",
    "В какой стране родилась Мария Кюри?": "Варшава — страна: Польша",
    "Who was born in Warsaw?": "Marie Curie — birthplace: Warsaw",
    "Кто родился в Париже?": "Пьер Кюри — место рождения: Париж",
    "Какой рост был у Королева?": "Сергей Королёв — рост: 1.72 metre",
    "What did Sergei Korolev write?": "Handbook of Field Radios — creator: Sergei Korolev",
    "Chapters of the handbook of field radios": "Handbook of Field Radios — chapters: Aerials, Batteries, Ёмкости",
    "address of the north depot": (
        "Depot North — address: geo, latitude: 59.93; geo, longitude: 30.31; street address: Harbour Road 5"
    ),
    "Где северный склад?": (
        "Северный склад — address: geo, latitude: 59.93; geo, longitude: 30.31; street address: Harbour Road 5"
    ),
    "Who won Nobel Prizes?": "Marie Curie — award, prize: Nobel Prize in Physics",
    "Столица Польши и население Варшавы": "Варшава — население: 1863056",
    "Maria Skłodowska": "Marie Curie — also called: Мария Склодовская",
    "Irène Joliot-Curie": "Irène Joliot-Curie — birthplace: Paris",
    "quantum chromodynamics": "",
    "квантовая хромодинамика": "",
    "thank you!": "",
}


def _rdflib(port: int) -> Sequence[str]:
    return [sys.executable, "tests/support/programs/rdf_server.py", str(PEOPLE), str(port)]


def _comunica(port: int) -> Sequence[str]:
    return [str(COMUNICA), str(PEOPLE), "-p", str(port)]


@asynccontextmanager
async def running(command: Callable[[int], Sequence[str]]) -> AsyncIterator[str]:
    """A server on a free port; its address."""
    port = free_port()
    process = subprocess.Popen(  # noqa: ASYNC220 - nothing here waits for it
        command(port),
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield f"http://localhost:{port}/sparql"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


async def up(all_graphs: Graphs, name: str) -> bool:
    try:
        await all_graphs.check(source(SourceKind.SPARQL, name))
    except GraphError:
        return False
    return True


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(_rdflib, id="rdflib"),
        pytest.param(
            _comunica,
            id="comunica",
            marks=pytest.mark.skipif(
                COMUNICA is None, reason="no Comunica: npm install -g @comunica/query-sparql-file"
            ),
        ),
    ],
)
async def test_the_answers_are_those_of_the_embedded_store(
    tmp_path: Path, command: Callable[[int], Sequence[str]]
) -> None:
    people, there = file_source(tmp_path), source(SourceKind.SPARQL, "there")
    with trio.fail_after(HANG_S):
        async with running(command) as url:
            endpoints = {"there": EndpointConfig(url=url, private=True)}
            # Each time another one: it would wait longer and longer before it asks again.
            await until(lambda: up(graphs(tmp_path, endpoints=endpoints), "there"))
            all_graphs = graphs(tmp_path, endpoints=endpoints)
            for question, sentence in QUESTIONS.items():
                here = await all_graphs.search([people], question)
                expected = [(each.iri, each.name, each.score, each.text, each.sparql) for each in here.passages]
                lines = [line for passage in here.passages for line in passage.text.splitlines()]
                assert (sentence in lines) if sentence else not lines, question
                found = await all_graphs.search([there], question)
                assert [
                    (each.iri, each.name, each.score, each.text, each.sparql) for each in found.passages
                ] == expected, question
                assert (found.reason, found.failed) == (here.reason, here.failed)
