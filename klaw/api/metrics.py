"""What Prometheus asks: the numbers of `klaw status`, and the counters and histograms of what runs in the background.
No labels name users, chats or what was said.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs
import trio
from prometheus_client import core
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from klaw import __version__
from klaw.api.request_auth import Api
from klaw.errors import HttpRefusal
from klaw.operations.handler import OPERATOR
from klaw.operations.perform import operations, perform, read

DEADLINE_S = 5.0

_GAUGES = (
    ("uptime_seconds", "since the start", ("uptime_s",)),
    ("resident_memory_bytes", "of this process", ("rss_bytes",)),
    ("connections", "WebSockets that are open", ("connections",)),
    ("http_connections", "HTTP connections that are open", ("http_connections",)),
    ("database_bytes", "size of klaw.db", ("disk", "database_bytes")),
    ("database_wal_bytes", "size of klaw.db-wal", ("disk", "wal_bytes")),
    ("commit_log_bytes", "size of the commit log", ("disk", "commit_log_bytes")),
    ("disk_free_bytes", "free where the data is", ("disk", "free_bytes")),
    ("llm_slots", "calls to models at the same time, at most", ("llm", "slots", "total")),
    ("llm_slots_busy", "calls to models now", ("llm", "slots", "busy")),
    ("llm_slots_waiting", "turns that wait for a call", ("llm", "slots", "waiting")),
    ("embedder_vectors", "messages with a vector", ("embedder", "embedded")),
    ("embedder_waiting", "messages that wait for a vector", ("embedder", "waiting")),
    ("coverage_searchable_messages", "that search should find", ("coverage", "searchable")),
    ("coverage_uncovered_messages", "that search does not find", ("coverage", "uncovered")),
    ("runs_running", "runs of tasks now", ("tasks", "running")),
    ("runs_queued", "runs of tasks that wait", ("tasks", "queued")),
)
"""Name, help text, and where it stands in what `status` answers."""
_TODAY = (
    ("calls", "llm_calls_today", "calls to models since 00:00 UTC"),
    ("prompt_tokens", "llm_prompt_tokens_today", "tokens of prompts since 00:00 UTC"),
    ("completion_tokens", "llm_completion_tokens_today", "tokens of answers since 00:00 UTC"),
)
_NANO = 1e9


def routes(api: Api) -> list[Route]:
    """GET /metrics: for operators, and for this machine while there is no token."""

    async def metrics(request: Request) -> Response:
        grant = api.grant(request)
        if not grant.operator:
            raise HttpRefusal(403, "an operator's token is needed (klaw token add USER --operator)")
        with trio.fail_after(DEADLINE_S):
            status = await perform(read(operations()["status"], {}), OPERATOR, api.parts)
        return Response(exposition(status), media_type=CONTENT_TYPE_LATEST)

    return [Route("/metrics", metrics, methods=["GET"])]


def exposition(status: Mapping[str, Any]) -> bytes:
    """What `status` answers, in Prometheus' text format."""
    return generate_latest(_MetricsCollector(status))


@attrs.frozen(eq=False)
class _MetricsCollector:
    """Implements prometheus_client's collector."""

    status: Mapping[str, Any]

    def collect(self) -> Iterable[core.Metric]:
        status = self.status
        info = core.InfoMetricFamily("klaw", "the server")
        info.add_metric([], {"version": __version__})
        yield info
        for name, text, path in _GAUGES:
            value: Any = status
            for part in path:
                value = value[part]
            yield core.GaugeMetricFamily(f"klaw_{name}", text, value=value)
        for noun, count in status["counts"].items():
            yield core.GaugeMetricFamily(f"klaw_{noun}", f"{noun} that are stored", value=count)
        today = status["llm"]["today"]
        for key, name, text in _TODAY:
            yield core.GaugeMetricFamily(f"klaw_{name}", text, value=today[key])
        yield core.GaugeMetricFamily(
            "klaw_llm_cost_dollars_today", "price of these calls, where it is known", value=today["cost_nano"] / _NANO
        )
        degraded = core.GaugeMetricFamily("klaw_degraded", "parts that do not work as they should", labels=["code"])
        for each in status["degraded"]:
            degraded.add_metric([each["code"]], 1)
        yield degraded
        yield from _counted(status["metrics"])


def _counted(metrics: Mapping[str, Mapping[str, Any]]) -> Iterator[core.Metric]:
    for name, each in metrics.items():
        if each["type"] == "counter":
            yield core.CounterMetricFamily(name.removesuffix("_total"), each["help"], value=each["value"])
        else:
            total, buckets = 0, []
            for bound, count in each["buckets"].items():
                total += count
                buckets.append((bound.replace("inf", "+Inf"), total))
            yield core.HistogramMetricFamily(name, each["help"], buckets=buckets, sum_value=each["sum"])
