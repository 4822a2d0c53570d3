"""How quick the page is, by the browser's own trace: first paint, a long answer while it comes, a long chat.

    python tools/bench_page.py [--repeats 5] [--tokens 4000] [--messages 50000] [--only PART] [--json]

A server with a stub model, and Debian's chromium without a window. First paint: each time with a new profile, so with a
cold cache, from the beginning of the navigation to the first contentful paint. Streaming: an answer of so many tokens,
one each 3 ms; scrolling: by pages, upwards through 2,000 messages of the long chat. A frame's work is what the
renderer's main thread does in one task (``RunTask`` of the trace); a task of more than 16 ms costs a frame.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Self

import trio
from playwright.sync_api import Browser, CDPSession, Page, sync_playwright

sys.path.insert(0, str(Path(__file__).parents[1]))

from klaw.domain.message import Role
from klaw.store.kinds import messages
from tests.support.browser import CHROMIUM
from tests.support.llm_server import Pause, Reply, Step, Text, serve_llm
from tests.support.server import served, write_home
from tests.support.stores import new, running_store

TOKEN_S = 0.003
SCROLLED = 2000
LONG = "длинный"
WORDS = (
    "The peas came up **early** this year, said Anna. ",
    "Картошку окучивали дважды: `в июне` и в июле. ",
    "- tomatoes\n- огурцы\n\n",
    "Did you see the frost on Tuesday? ",
)


def answer(tokens: int) -> Reply:
    """Paragraphs, a list and code; a token is about four characters."""
    text = "".join(WORDS[number % len(WORDS)] + ("\n\n" if number % 9 == 8 else "") for number in range(tokens))
    steps: list[Step] = []
    for at in range(tokens):
        steps += [Text(text[4 * at : 4 * at + 4]), Pause(TOKEN_S)]
    return Reply(steps=steps, usage=(100, tokens))


async def write_chat(home: Path, count: int) -> None:
    """A chat of so many messages, through the store."""
    async with running_store(home / "data") as store:
        for begin in range(0, count, 1000):
            batch = [
                new(WORDS[number % 4] * (1 + number % 3), chat=LONG, role=(Role.USER, Role.ASSISTANT)[number % 2],
                    at=time.time() - 60 * (count - number))
                for number in range(begin, min(count, begin + 1000))
            ]  # fmt: skip
            await store.writer.run(messages.append, batch)


# -- in the browser ---------------------------------------------------------------------------------------------------


class Trace:
    """Records what the renderer's main thread does."""

    def __init__(self, page: Page) -> None:
        self._cdp: CDPSession = page.context.new_cdp_session(page)
        self._page = page
        self._events: list[dict[str, Any]] = []
        self._cdp.on("Tracing.dataCollected", lambda got: self._events.extend(got["value"]))

    def __enter__(self) -> Self:
        categories = ["toplevel", "disabled-by-default-devtools.timeline", "devtools.timeline"]
        self._cdp.send(
            "Tracing.start", {"traceConfig": {"includedCategories": categories}, "transferMode": "ReportEvents"}
        )
        return self

    def __exit__(self, *_: object) -> None:
        done: list[object] = []
        self._cdp.on("Tracing.tracingComplete", lambda _: done.append(True))
        self._cdp.send("Tracing.end")
        while not done:
            self._page.wait_for_timeout(20)

    def tasks(self, clock: str = "dur") -> list[float]:
        """Milliseconds of each task of the page's main thread, the longest first; with ``tdur`` of its CPU time, which
        other programs on the machine do not make longer."""
        mains = {
            (each["pid"], each["tid"])
            for each in self._events
            if each["name"] == "thread_name" and each["args"]["name"] == "CrRendererMain"
        }
        spent: dict[tuple[int, int], list[float]] = {}
        for each in self._events:
            where = (each["pid"], each["tid"])
            if where in mains and each["name"] in ("RunTask", "ThreadControllerImpl::RunTask") and each["ph"] == "X":
                spent.setdefault(where, []).append(each.get(clock, 0) / 1000)
        return sorted(max(spent.values(), key=sum, default=[]), reverse=True)

    def work(self) -> dict[str, Any]:
        tasks = self.tasks()
        return {
            "worst_ms": round(tasks[0], 1),
            "worst_cpu_ms": round(self.tasks("tdur")[0], 1),
            "p99_ms": round(statistics.quantiles(tasks, n=100)[-1], 2),
            "over_16_ms": sum(each > 16 for each in tasks),
            "tasks": len(tasks),
        }


_PAINT = """new Promise(done => new PerformanceObserver(list => list.getEntries().forEach(each => {
  if (each.name === "first-contentful-paint") done(each.startTime);
})).observe({type: "paint", buffered: true}))"""


def first_paint(browser: Browser, base: str) -> float:
    context = browser.new_context()
    page = context.new_page()
    page.goto(base)
    page.wait_for_selector("nav a")
    found = float(page.evaluate(_PAINT))
    context.close()
    return found


_SHIFTS = """() => {
  window.shifts = [];
  window.moved = new Set();
  new PerformanceObserver(list => list.getEntries().forEach(each => {
    shifts.push(each.value);
    each.sources.forEach(({node}) => moved.add(`${node?.nodeName}.${node?.className}`));
  })).observe({type: "layout-shift"});
}"""


def cpu_s(pid: int) -> float:
    """CPU time of the server and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def streamed(browser: Browser, base: str, number: int, pid: int) -> dict[str, Any]:
    page = browser.new_page()
    page.goto(f"{base}/#/chats/streamed{number}")
    page.wait_for_selector("textarea")
    page.wait_for_timeout(500)
    page.evaluate(_SHIFTS)
    page.fill("textarea", "Tell me everything")  # playwright's own script is loaded now, which takes 13 ms
    begin = cpu_s(pid)
    with Trace(page) as trace:
        page.keyboard.press("Enter")
        page.wait_for_selector("article.assistant[data-seq] .text:not(.plain):not(:has(.plain))", timeout=120_000)
        page.wait_for_timeout(1000)
    shift = page.evaluate("shifts.reduce((sum, each) => sum + each, 0)")
    moved = page.evaluate("[...moved]")
    page.close()
    spent = round(cpu_s(pid) - begin, 2)
    return {**trace.work(), "layout_shift": round(shift, 4), "moved": moved, "server_cpu_s": spent}


def scrolled(browser: Browser, base: str) -> dict[str, Any]:
    page = browser.new_page()
    page.goto(f"{base}/#/chats/{LONG}")
    page.wait_for_selector("article[data-seq]")
    page.wait_for_timeout(1000)
    first = "Number(document.querySelector('article[data-seq]').dataset.seq)"
    last = int(page.evaluate("Number([...document.querySelectorAll('article[data-seq]')].pop().dataset.seq)"))
    page.focus(".messages")
    with Trace(page) as trace:
        for _ in range(SCROLLED):
            if page.evaluate(first) <= last - SCROLLED:
                break
            page.keyboard.press("PageUp")
            page.wait_for_timeout(16)
    cdp = page.context.new_cdp_session(page)
    cdp.send("HeapProfiler.collectGarbage")
    cdp.send("Performance.enable")
    told = {each["name"]: each["value"] for each in cdp.send("Performance.getMetrics")["metrics"]}
    rows = page.locator("article[data-seq]").count()
    page.close()
    heap = round(told["JSHeapUsedSize"] / 1e6, 1)
    return {**trace.work(), "rows": rows, "nodes": int(told["Nodes"]), "heap_mb": heap}


def measure(base: str, pid: int, args: argparse.Namespace) -> dict[str, Any]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        first_paint(browser, base)  # the browser itself starts
        found: dict[str, Any] = {"load": round(os.getloadavg()[0], 1)}
        if args.only in (None, "paint"):
            found["first_paint_ms"] = sorted(round(first_paint(browser, base)) for _ in range(args.repeats))
        if args.only in (None, "streamed"):
            found["streamed"] = [streamed(browser, base, number, pid) for number in range(args.repeats)]
        if args.only in (None, "scrolled"):
            found["scrolled"] = [scrolled(browser, base) for _ in range(args.repeats)]
        return found


async def main(args: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as made:
        async with serve_llm() as llm:
            llm.respond = lambda _: answer(args.tokens)
            home = write_home(Path(made), llm=llm.url)
            await write_chat(home, args.messages)
            async with served(home) as server:
                base = server.url.replace("ws://", "http://").removesuffix("/ws")
                found = await trio.to_thread.run_sync(measure, base, server.process.pid, args)
    if args.json:
        print(json.dumps(found, indent=1))
        return
    print(f"load {found['load']}")
    if paints := found.get("first_paint_ms"):
        print(f"first contentful paint, cold cache: {paints} ms, median {statistics.median(paints)}")
    for name in ("streamed", "scrolled"):
        if runs := found.get(name):
            worst, cpu = (statistics.median(each[key] for each in runs) for key in ("worst_ms", "worst_cpu_ms"))
            print(f"{name}: longest task, median of {len(runs)}: {worst} ms; its CPU time {cpu} ms", *runs, sep="\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=4000)
    parser.add_argument("--messages", type=int, default=50_000)
    parser.add_argument("--only", choices=("paint", "streamed", "scrolled"))
    parser.add_argument("--json", action="store_true")
    trio.run(main, parser.parse_args())
