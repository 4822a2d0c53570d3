"""Codes of vectors estimate their cosines, and measuring stops when the nearest are certain. Pure."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klaw.store.search import vector_quantizer as codes
from klaw.store.search.vector_search import GROUP, Neighbour, nearest_of


def cone(count: int, dimension: int, seed: int) -> np.ndarray:
    """Unit vectors in one direction, as a model makes them."""
    numbers = np.random.default_rng(seed)
    made = 0.88 * np.eye(dimension)[3] + 0.47 * numbers.standard_normal((count, dimension)) / dimension**0.5
    return (made / np.linalg.norm(made, axis=1, keepdims=True)).astype("<f4")


def items(made: np.ndarray) -> list[codes.VectorItem]:
    return [
        codes.VectorItem(
            rowid=place + 1, seq=place + 1, created_s=1_700_000_000 + place, role="user", vector=row.tobytes()
        )
        for place, row in enumerate(made)
    ]


@pytest.mark.parametrize("dimension", [384, 64, 100, 1024])
def test_the_fine_estimate_is_near_the_cosine_and_nearer_than_the_rough_one(dimension: int) -> None:
    made = cone(2_000, dimension, 1)
    centre = codes.mean([row.tobytes() for row in made[:500]], dimension)
    records = codes.encode(items(made), centre)
    assert records.dtype.itemsize % 8 == 0
    rough_errors, fine_errors = [], []
    for query in cone(20, dimension, 2):
        coded = codes.CodedQuery(query.tobytes(), centre)
        true = made @ query
        rough_errors.append(np.std(coded.rough(records) - true))
        fine_errors.append(np.std(coded.fine(records) - true))
    assert np.mean(fine_errors) < 0.11 / dimension**0.5
    assert np.mean(fine_errors) < np.mean(rough_errors) / 2


def test_without_the_centre_the_same_bits_tell_less() -> None:
    made = cone(2_000, 384, 1)
    query = cone(1, 384, 2)[0]
    true = set(np.argsort(-(made @ query))[:20])

    def found(centre: np.ndarray) -> int:
        estimates = codes.CodedQuery(query.tobytes(), centre).rough(codes.encode(items(made), centre))
        return len(true & set(np.argsort(-estimates)[:200]))

    assert found(codes.mean([row.tobytes() for row in made], 384)) > found(np.zeros(384, np.float32))


@pytest.mark.parametrize("value", [0.0, float("nan"), float("inf"), 1e30])
def test_a_damaged_vector_has_a_code_and_spoils_no_other(value: float) -> None:
    made = cone(10, 384, 1)
    centre = codes.mean([row.tobytes() for row in made], 384)
    sound = codes.CodedQuery(made[3].tobytes(), centre).fine(codes.encode(items(made), centre))
    made[5] = value
    estimates = codes.CodedQuery(made[3].tobytes(), centre).fine(codes.encode(items(made), centre))
    assert np.isfinite(estimates).all()
    assert np.delete(estimates, 5).tolist() == np.delete(sound, 5).tolist()


def test_a_centre_survives_as_text() -> None:
    centre = codes.mean([row.tobytes() for row in cone(5, 384, 1)], 384)
    assert (codes.load(codes.dump(centre)) == centre).all()


def test_records_are_taken_and_joined_whole() -> None:
    made = cone(10, 100, 1)
    records = codes.encode(items(made), codes.mean([row.tobytes() for row in made], 100))
    joined = codes.join([codes.take(records, np.array([7, 2])), records[:1]])
    assert joined["rowid"].tolist() == [8, 3, 1]
    assert joined["created_s"].tolist() == [1_700_000_007, 1_700_000_002, 1_700_000_000]


def measuring(distances: dict[int, float], asked: list[int]) -> Callable[[list[int]], list[Neighbour]]:
    def measure(rowids: list[int]) -> list[Neighbour]:
        asked.extend(rowids)
        return [Neighbour(rowid, distances[rowid]) for rowid in rowids if rowid in distances]

    return measure


def test_good_estimates_are_measured_once_and_bad_ones_to_the_end() -> None:
    numbers = np.random.default_rng(1)
    distances = {rowid: 0.1 + rowid / 1000 for rowid in range(1000)}
    for error, most in ((0.001, 2 * GROUP), (5.0, 1000)):
        guessed = sorted(
            ((rowid, distance + error * numbers.standard_normal()) for rowid, distance in distances.items()),
            key=lambda each: each[1],
        )
        asked: list[int] = []
        found = nearest_of(guessed, measuring(distances, asked), 10)
        assert [each.rowid for each in found] == list(range(10))
        assert len(asked) == len(set(asked)) <= most


@settings(max_examples=50, deadline=None)
@given(count=st.integers(0, 300), limit=st.integers(1, 120), missing=st.integers(0, 300))
def test_what_is_left_out_makes_room_for_others(count: int, limit: int, missing: int) -> None:
    distances = {rowid: float(rowid) for rowid in range(missing, count)}
    found = nearest_of([(rowid, float(rowid)) for rowid in range(count)], measuring(distances, []), limit)
    assert [each.rowid for each in found] == sorted(distances)[:limit]
