"""Counters and histograms."""

import pytest
import trio

from klaw.actor.metrics import Metrics
from klaw.memory.topics.search import TopicMetrics


def test_values_are_counted_in_buckets():
    metrics = Metrics()
    counter = metrics.counter("a_total", "so many")
    sizes = metrics.histogram("b", "how large", (1, 10))
    counter.add()
    counter.add(2)
    for value in (0, 1, 2, 10, 11):
        sizes.observe(value)
    assert metrics.report() == {
        "a_total": {"type": "counter", "help": "so many", "value": 3},
        "b": {
            "type": "histogram",
            "help": "how large",
            "count": 5,
            "sum": 24.0,
            "buckets": {"1": 2, "10": 2, "inf": 1},
        },
    }
    with pytest.raises(ValueError, match="a_total"):
        metrics.counter("a_total", "again")


async def test_durations_are_noted_however_the_body_ends(autojump_clock):
    sizes = Metrics().histogram("s", "", (1, 10))
    with trio.move_on_after(5), sizes.timed():
        await trio.sleep_forever()
    assert (sum(sizes.counts), sizes.sum) == (1, 5.0)


def test_topics_have_the_metrics_that_are_promised():
    metrics = Metrics()
    TopicMetrics(metrics)
    assert {
        "klaw_topics_extracted_total",
        "klaw_splitter_duration_seconds",
        "klaw_topics_size_chars",
        "klaw_topics_coverage_gaps_total",
        "klaw_topics_merged_total",
        "klaw_merger_duration_seconds",
        "klaw_topics_consolidation_candidates",
        "klaw_topics_search_duration_seconds",
        "klaw_topics_search_results",
        "klaw_topics_reranker_selected",
        "klaw_reranker_duration_seconds",
    } <= metrics.report().keys()
