"""How the commands print: columns, durations, sizes, and foreign text made harmless."""

from typing import Any

import attrs

from klaw.cli.output import line, table, written
from klaw.domain import usage
from klaw.domain.usage import UsageSum
from klaw.operations import actors, mcp, status
from klaw.operations.lines import size
from tests.support.asking import receipt_lines
from tests.support.plugins.golden import Golden


def test_size() -> None:
    assert [size(count) for count in (0, 5000, 3 << 19, 20 << 30)] == ["0 KiB", "5 KiB", "1.5 MiB", "20.0 GiB"]


def test_columns_align_by_cells_not_characters() -> None:
    """Wide characters take two cells."""
    assert table([["чат", "1"], ["日本", "22"]], right=frozenset({1})) == ["чат    1", "日本  22"]


def test_foreign_text_cannot_command_the_terminal() -> None:
    assert line("a\x1b[31mb\r\nc\u202ed") == "a␛[31mb c\ufffdd"


def node(name: str, **values: Any) -> dict[str, Any]:
    return {"name": name, "kind": "group", "children": [], **values}


def test_the_tree_is_printed_with_its_counters(golden: Golden) -> None:
    box = {"capacity": 8, "depth": 1, "high_water": 2, "handled": 3, "failed": 4, "dropped": 5}
    actor = {
        "kind": "actor",
        "state": "running",
        "since": 40.0,
        "activity": "idle\x1b[2J",
        "activity_since": 99.0,
        "restarts": 6,
        "last_error": "ModelError",
        "mailbox": box,
    }
    slots = {"kind": "slots", "total": 2, "busy": 1, "waiting": 7, "high_water": 8, "granted": 9}
    connection = {"kind": "connection", "id": "c1", "since": 90.0, "user": "анна", "frames_in": 12, "client": None}
    tree = node(
        "supervisor",
        children=[
            node("store", children=[node("store.writer", **actor)]),
            node("llm", children=[node("llm.slots", **slots)]),
            node("gateway", **{**actor, "mailbox": None}, children=[node("connection c1", **connection)]),
        ],
    )
    printed = written(actors._lines({"now": 100.0, "tree": tree}))
    golden("tables/actors", "\n".join(printed))
    assert "\x1b" not in "".join(printed)


COVERAGE = {
    "whole": True,
    "counted_at": "2026-11-21T12:00:00Z",
    "repaired_texts": 0,
    "repaired_vectors": 0,
    "error": None,
    "messages": 12,
    "searchable": 10,
    "not_searchable": 2,
    "wordless": 0,
    "uncovered": 0,
    "chats": {},
}


def test_status_says_whether_all_is_covered(golden: Golden) -> None:
    changes: list[dict[str, Any]] = [
        {"wordless": 2},
        {"repaired_texts": 1, "repaired_vectors": 2},
        {"uncovered": 3, "whole": False},
        {"error": "SQLError"},
    ]
    golden("tables/status_coverage", "\n".join(status._coverage({**COVERAGE, **each}) for each in changes))


TASKS: dict[str, Any] = {
    "count": 0,
    "enabled": 0,
    "next": None,
    "running": 0,
    "queued": 0,
    "failing": [],
    "undelivered": 0,
}


def test_status_tells_how_tasks_stand(golden: Golden) -> None:
    busy = {
        **TASKS,
        "count": 3,
        "enabled": 2,
        "next": {"at": "2026-11-23T08:00:00.000Z", "user": "anna", "task": "day"},
        "running": 1,
        "queued": 2,
        "failing": [{"user": "anna", "task": "mail", "error": "no_such_chat"}],
        "undelivered": 4,
    }
    golden("tables/status_tasks", "\n".join([*status._tasks(TASKS), *status._tasks(busy)]))


SUMMARIES = {"enabled": True, "made": 2, "last_made": "then", "failing": 0, "code": None, "next_try": None}


def test_the_status_tells_of_summaries(golden: Golden) -> None:
    changes: list[dict[str, Any]] = [
        {"enabled": False},
        {"made": 0, "last_made": None},
        {"failing": 1, "code": "llm_timeout", "next_try": "soon"},
    ]
    golden("tables/status_summaries", "\n".join(status._summaries({**SUMMARIES, **each}) for each in changes))


def test_status_lists_what_is_degraded(golden: Golden) -> None:
    answer = {
        "version": "1",
        "pid": 2,
        "uptime_s": 3,
        "rss_bytes": 1 << 20,
        "address": None,
        "connections": 0,
        "http_connections": 0,
        "schema": 1,
        "counts": {"messages": 5, "chats": 2, "users": 1, "topics": 3, "facts": 4, "people": 6},
        "llm": {
            "model": "local/m",
            "slots": {"busy": 0, "total": 2, "waiting": 0},
            "today": attrs.asdict(UsageSum(calls=2, unpriced_calls=2, prompt_tokens=5, completion_tokens=4)),
            "budget": {"share": None},
            "providers": [
                {"name": "a", "state": "closed", "failures": 0, "retry_in_s": 0},
                {"name": "b", "state": "open", "failures": 3, "retry_in_s": 9},
                {"name": "c", "state": "half_open", "failures": 4, "retry_in_s": 0},
            ],
            "local": {"state": "missing", "reason": "run `klaw models pull`"},
        },
        "embedder": {"state": "ready", "reason": None, "since": "2026-11-21T12:00:00Z", "embedded": 4, "waiting": 1},
        "mcp": [],
        "coverage": COVERAGE,
        "tasks": TASKS,
        "summaries": SUMMARIES,
        "disk": {"database_bytes": 0, "wal_bytes": 0, "free_bytes": 0, "commit_log_bytes": 0},
        "degraded": [{"code": "no_llm", "text": "нет модели"}, {"code": "x", "text": "y"}],
    }
    printed = written(status._status(answer).lines)
    golden("tables/status", "\n".join(printed))
    well = status._status({**answer, "degraded": []})
    assert written(well.lines)[-1] == "problems      nothing"
    assert (status._status(answer).degraded, well.degraded) == (True, False)


CANDIDATE = {
    "seq": 3,
    "id": "m3",
    "role": "user",
    "created_at": "2026-11-21T12:00:00Z",
    "vector_rank": 1,
    "distance": 0.31234,
    "text_rank": None,
    "bm25": None,
    "score": 0.01639,
    "tokens": 12,
    "decision": "near",
}
TURN = {
    "id": "t1",
    "chat": "local:main",
    "segment": 0,
    "first_seq": 31,
    "last_seq": 31,
    "model": "local/m",
    "status": "done",
    "error": None,
    "started_at": "2026-11-22T08:00:00.000Z",
    "ended_at": "2026-11-22T08:01:00.000Z",
    "timings": {"llm": 12.5},
    "usage": {"prompt_tokens": 100, "cost": None},
    "receipt": {
        "budget": {
            "context_tokens": 8192,
            "reply_reserve_tokens": 1024,
            "correction": 1.0,
            "usable_tokens": 6348,
            "used_tokens": 300,
        },
        "layers": [{"name": "system", "tokens": 80}, {"name": "recall", "tokens": 20, "shortened": True}],
        "window": {"messages": 20, "first_seq": 11, "last_seq": 30, "left_out": 0, "older_in_segment": True},
        "recall": {
            "guard": "search",
            "query_words": 4,
            "degraded": ["embedding_late"],
            "timings_ms": {"search": 3.1},
            "kept": [3],
            "candidates": [CANDIDATE, {**CANDIDATE, "seq": 7, "decision": "over_budget", "excerpt": True}],
        },
        "problems": ["USER.md was left out: it cannot be read"],
    },
}


def test_a_receipt_shows_layers_window_and_every_candidate(golden: Golden) -> None:
    """Of version 1 too, as turns of Klaw 0.1 have it: without settings and with the numbers of that time."""
    golden("tables/receipt_of_version_1", "\n".join(receipt_lines(TURN)))


def test_a_receipt_tells_what_was_spent_in_words_and_by_model() -> None:
    record = usage.record(
        {
            "stub/model": UsageSum(
                calls=1, prompt_tokens=900, completion_tokens=20, cached_tokens=700, cost_nano=2_500_000
            ),
            "stub/chooser": UsageSum(calls=2, prompt_tokens=100, completion_tokens=7, unpriced_calls=2),
        }
    )
    printed = "\n".join(receipt_lines({**TURN, "usage": record}))
    assert (
        "usage    3 calls, 1,000 tokens in (700 cached), 27 out, $0.0025 + unknown;"
        " stub/model: 1 call, 900 tokens in (700 cached), 20 out, $0.0025;"
        " stub/chooser: 2 calls, 100 tokens in, 7 out, price unknown\n"
    ) in printed
    assert "{" not in printed


def test_a_question_that_recall_did_not_read_has_no_number_of_words() -> None:
    recall = {**TURN["receipt"]["recall"], "guard": "all_in_context", "query_words": 0, "candidates": [], "kept": []}
    printed = "\n".join(receipt_lines({**TURN, "receipt": {**TURN["receipt"], "recall": recall}}))
    assert "recall   all_in_context; recalled: nothing" in printed
    assert "content words" not in printed


def test_a_turn_without_a_context_says_so() -> None:
    """A turn that was stopped before it began has an empty receipt."""
    printed = receipt_lines({**TURN, "receipt": {}, "model": "", "status": "stopped", "timings": {}, "usage": {}})
    assert printed[-1] == "No context was put together for this answer."


def test_a_receipt_says_why_each_candidate_was_cut(golden: Golden) -> None:
    """The new form: settings, what was found in all, steps, and the reasons in words."""
    recall = {
        "guard": "search",
        "query_words": 3,
        "command": True,
        "days": [["2026-11-20", "2026-11-20"], ["2026-11-01", "2026-11-30"]],
        "degraded": ["cut_dated"],
        "timings_ms": {"begin": 0.2, "embed": 8.0, "search": 3.1, "words": 1.0, "vectors": 2.0, "rank": 0.1},
        "kept": [3],
        "kept_tokens": 12,
        "found": 120,
        "scope": {"first_seq": 1, "end_seq": 201},
        "settings": {"topK": 1, "maxTokens": 400, "relevanceThreshold": 0.5, "timeBudgetMs": 150},
        "candidates": [
            {"seq": 3, "role": "user", "vector_rank": 1, "distance": 0.1, "score": 0.02, "tokens": 12,
             "decision": "near", "boosts": ["date"], "whole_tokens": 300},
            {"seq": 9, "role": "user", "text_rank": 1, "score": 0.01, "tokens": 9, "decision": "over_top_k"},
        ],
    }  # fmt: skip
    printed = receipt_lines({**TURN, "receipt": {**TURN["receipt"], "version": 2, "recall": recall}})
    golden("tables/receipt", "\n".join(printed))


MCP = {
    "name": "notes",
    "kind": "stdio",
    "state": "ready",
    "since": "2026-11-22T04:00:00Z",
    "tools": ["notes__find", "notes__read"],
    "resources": 2,
    "prompts": 1,
    "logged": {"warning": 3},
    "left_out": 0,
    "users": ["local"],
    "protocol": "2026-07-28",
    "reason": None,
    "said": "the index is old",
    "last_error": None,
    "connects": 1,
    "retry_in_s": None,
}
GONE = MCP | {
    "name": "far",
    "kind": "http",
    "state": "waiting",
    "tools": [],
    "resources": 0,
    "prompts": 0,
    "logged": {},
    "left_out": 3,
    "users": ["*"],
    "protocol": None,
    "reason": "its program has ended",
    "said": "ImportError: no module named notes",
    "last_error": "McpError",
    "retry_in_s": 256.0,
}


def test_mcp_servers_as_text(golden: Golden) -> None:
    golden("tables/mcp", "\n".join(mcp._lines({"servers": [GONE, MCP], "config_changed": True})))


def test_a_receipt_never_tells_of_more_room_than_the_context_has() -> None:
    """Klaw estimates more tokens than this model counts, so in its own measure there is room for more than 8192."""
    from klaw.operations.chat import context_lines
    from klaw.operations.explain.receipt_text import _budget

    budget = {
        "context_tokens": 8192,
        "reply_reserve_tokens": 1024,
        "correction": 0.5,
        "usable_tokens": 12697,
        "used_tokens": 400,
    }
    told = " ".join(_budget(budget))
    assert "12697 usable tokens, as Klaw estimates them" in told
    assert "200 of 6348 (context 8192, 1024 kept for the reply)" in told
    assert "estimates" not in " ".join(_budget(budget | {"correction": 1.0, "usable_tokens": 6348}))
    recall = {"guard": "disabled", "kept": [], "degraded": []}
    receipt = {"budget": budget, "layers": [], "window": {"messages": 0}, "recall": recall}
    assert context_lines({"receipt": receipt})[0] == "The last answer was made from 200 of 6348 tokens:"


def test_one_is_no_plural() -> None:
    from klaw.domain.text import plural

    assert [plural(count, "user") for count in (0, 1, 2, 1000)] == ["0 users", "1 user", "2 users", "1,000 users"]
    assert plural(1, "person", "people") == "1 person"
    assert plural(2, "person", "people") == "2 people"
    assert status._counted({"messages": 1, "chats": 2, "users": 1}, "message", "chat", "user") == (
        "1 message, 2 chats, 1 user"
    )
