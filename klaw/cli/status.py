"""``klaw status``: what the server is, has and does, and what of it is degraded."""

import argparse
from typing import Any

from klaw.cli.admin_call import NoServer, Refused, call, fail, line, print_json, size, span, table
from klaw.cli.mcp import in_short as mcp_line
from klaw.config.paths import Paths
from klaw.domain.text import plural
from klaw.domain.usage import dollars
from klaw.operations.usage import budget_text


def status_command(args: argparse.Namespace) -> int:
    """Prints the server's status; 1 when none runs."""
    try:
        answer = call(Paths.resolve(args.home), "status")
    except (NoServer, Refused) as error:
        return fail(error)
    if args.json:
        print_json(answer)
    else:
        print("\n".join(lines(answer)))
    return 0


def lines(answer: dict[str, Any]) -> list[str]:
    """The status as text."""
    counts, llm, embedder, disk = answer["counts"], answer["llm"], answer["embedder"], answer["disk"]
    slots, local = llm["slots"], llm["local"]
    vectors = f"{plural(embedder['embedded'], 'vector')}, {embedder['waiting']} waiting"
    rows = [
        ["server", f"Klaw {answer['version']}, pid {answer['pid']}, up {span(answer['uptime_s'])}"],
        ["address", f"{answer['address'] or 'not listening'}, {plural(answer['connections'], 'connection')}"],
        ["memory", size(answer["rss_bytes"])],
        ["content", _counted(counts, "message", "chat", "user")],
        ["kept", f"{_counted(counts, 'topic', 'fact')}, {plural(counts['people'], 'person', 'people')}"],
        ["model", f"{llm['model']}, {slots['busy']} of {slots['total']} slots busy, {slots['waiting']} waiting"],
        ["spent today", _spent(llm["today"], llm["budget"])],
        *[["provider", _provider(each)] for each in llm["providers"]],
        *[["MCP server", mcp_line(each)] for each in answer["mcp"]],
        *([["local model", _with_reason(local["state"], local["reason"])]] if local else []),
        ["embeddings", _with_reason(f"{embedder['state']} since {embedder['since']}, {vectors}", embedder["reason"])],
        ["coverage", _coverage(answer["coverage"])],
        *[["tasks" if not place else "", text] for place, text in enumerate(_tasks(answer["tasks"]))],
        ["summaries", _summaries(answer["summaries"])],
        ["topics", _topics(answer.get("topics"), answer.get("metrics", {}))],
        ["database", f"{size(disk['database_bytes'])}, schema {answer['schema']}"],
        ["logs to sync", size(disk["commit_log_bytes"])],
        ["disk", f"{size(disk['free_bytes'])} free"],
        *[["degraded" if not place else "", each["text"]] for place, each in enumerate(answer["degraded"])],
    ]
    if not answer["degraded"]:
        rows.append(["degraded", "nothing"])
    return table([[name, line(text)] for name, text in rows])


def _counted(counts: dict[str, int], *nouns: str) -> str:
    return ", ".join(plural(counts[f"{noun}s"], noun) for noun in nouns)


def _spent(today: dict[str, Any], budget: dict[str, Any]) -> str:
    """What calls to models cost since 00:00 UTC, and how the daily limits stand."""
    tokens = today["prompt_tokens"] + today["completion_tokens"]
    unknown = f", {today['unpriced_calls']} of unknown price" if today["unpriced_calls"] else ""
    limit = f"; {budget_text(budget)}" if budget["share"] is not None else ""
    return f"{dollars(today['cost_nano'])}, {plural(today['calls'], 'call')}{unknown}, {plural(tokens, 'token')}{limit}"


def _provider(provider: dict[str, Any]) -> str:
    """An LLM service and whether it is asked now."""
    name, failures, error = provider["name"], provider["failures"], provider.get("error")
    calls = "1 failed call" if failures == 1 else f"{failures} failed calls"
    match provider["state"]:
        case "open":
            said = f"{name}: left alone for {span(provider['retry_in_s'])} after {calls}"
        case "half_open":
            said = f"{name}: being tried again after {calls}"
        case _ if failures:
            said = f"{name}: {calls} in a row"
        case _:
            said = f"{name}: the last call failed" if error else f"{name}: works"
    return f"{said}, {span(provider['failed_s'])} ago: {error}" if error else said


def _coverage(coverage: dict[str, Any]) -> str:
    """Whether every message can be brought back."""
    if coverage["error"]:
        return f"not known: the indexes cannot be read ({coverage['error']}); `klaw doctor` says more"
    lost, silent = coverage["uncovered"], coverage["wordless"]
    found = f"{lost} of {coverage['searchable']} messages cannot be found" if lost else "every message can be found"
    notes = [f"{silent} hold no word"] if silent else []
    repaired = coverage["repaired_texts"] + coverage["repaired_vectors"]
    notes += [f"{plural(repaired, 'index row')} repaired"] if repaired else []
    notes += [] if coverage["whole"] else [f"{coverage['messages']} looked at so far"]
    return found + (f" ({', '.join(notes)})" if notes else "")


def _tasks(tasks: dict[str, Any]) -> list[str]:
    """How tasks and runs stand, and what of them needs somebody."""
    off = tasks["count"] - tasks["enabled"]
    first = plural(tasks["count"], "task") + (f", {off} of them disabled" if off else "")
    first += f", {plural(tasks['running'], 'run')} under way, {tasks['queued']} waiting"
    following = tasks["next"]
    out = [first]
    if following is not None:
        out.append(f"next: {following['task']} of {following['user']} at {following['at']}")
    out += [
        f"failing: {each['task']} of {each['user']} ({each['error']}); "
        f"see `klaw schedule runs {each['task']} --user {each['user']}`"
        for each in tasks["failing"]
    ]
    if tasks["undelivered"]:
        out.append(
            f"results of the last 30 days without a chat to go to: {tasks['undelivered']}; "
            "see `klaw runs --status failed`"
        )
    return out


def _summaries(summaries: dict[str, Any]) -> str:
    """What the summarizer did, and what it waits for."""
    if not summaries["enabled"]:
        return "off"
    said = f"{summaries['made']} made since the start"
    if summaries["last_made"]:
        said += f", the last at {summaries['last_made']}"
    if summaries["failing"]:
        chats = plural(summaries["failing"], "chat")
        said += f"; {chats} failed ({summaries['code']}), tried again at {summaries['next_try']}"
    return said


def _topics(status: dict[str, Any] | None, metrics: dict[str, Any]) -> str:
    """What the archivist has done since the start, and what waits."""
    if status is None:
        return "off (topics.enabled)"
    made, merged = (metrics[f"klaw_topics_{name}_total"]["value"] for name in ("extracted", "merged"))
    notes = [f"{status['failing']} failed and wait"] if status["failing"] else []
    notes += [status["error"]] if status["error"] else []
    text = f"{made} made and {merged} merged since the start, {plural(status['unarchived'], 'message')} without one"
    return text + (f" ({', '.join(notes)})" if notes else "")


def _with_reason(state: str, reason: str | None) -> str:
    return f"{state} ({reason})" if reason else state
