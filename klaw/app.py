"""The composition root: builds every part, starts it in order, stops it in stages.

Start: store, writer, embedder, local model, listener, admin socket; then the chats that have unanswered messages. Stop
is the reverse, by closing mailboxes stage by stage, so that each part can finish what it has: no new connections, then
the chats' last turns, then the embedder's backlog, then the writer's last checkpoint. A failed writer or listener ends
the process with an error.
"""

import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

import structlog
import trio

from klaw.actor.clock import SystemClock, iso
from klaw.actor.supervisor import ActorSpec, Restart, Supervisor
from klaw.config.paths import Paths, ensure_private_dir
from klaw.config.schema import EngineConfig
from klaw.domain.embedding import EmbedderState
from klaw.domain.events import MessageStored
from klaw.domain.message import Message
from klaw.health import watch
from klaw.llm.local.process import LocalProcess, local_settings
from klaw.memory import archivist as archivist_actor
from klaw.memory import coverage as coverage_actor
from klaw.memory.archivist import ArchivistServices
from klaw.memory.embed import embedder as embedder_actor
from klaw.memory.facts import memory_files as files_actor
from klaw.memory.forget import compactor as compactor_actor
from klaw.memory.summaries import summarizer as summarizer_actor
from klaw.parts import App, build
from klaw.store import writer as writer_actor
from klaw.store.journal import Journal
from klaw.store.reindex import actor as reindex_actor
from klaw.store.reindex.places import Places
from klaw.store.reindex.values import Progress
from klaw.store.sql import messages, meta, usage, vectors
from klaw.store.sql.usage import UsageFilters
from klaw.store.store import open_store
from klaw.subagents import scheduler as scheduler_actor

CORRECTION_TURNS = 200
"""The newest turns, from which the corrections of token estimates are taken at the start."""

log = structlog.get_logger("klaw.app")


@asynccontextmanager
async def running(
    config: EngineConfig,
    paths: Paths,
    *,
    fsync: Callable[[int], None] = os.fsync,
    report: Callable[[Progress], None] = lambda _step: None,
) -> AsyncIterator[App]:
    """Everything but the listeners, running; stopped in stages in the end.

    Args:
        config: the configuration.
        paths: where files are.
        fsync: what the journal calls; benchmarks imitate a slow disk with it.
        report: see ``open_store``.

    Raises:
        StorageError: the store cannot be opened.
        ExceptionGroup: a vital actor failed.
    """
    clock = SystemClock()
    ensure_private_dir(paths.data_dir)
    journal = Journal(paths.data_dir, checkpoint_bytes=config.store.checkpoint_bytes, fsync=fsync)
    async with (
        open_store(paths.database, journal, readers=config.store.readers, report=report) as store,
        trio.open_nursery() as nursery,
    ):
        app = build(config, paths, clock, store, Supervisor(nursery, clock))
        await _start(app)
        nursery.start_soon(app.accounts.registry.know_configured)
        yield app
        await _stop(app)
        nursery.cancel_scope.cancel(reason="all parts have stopped")


async def _start(app: App) -> None:
    config, store = app.config, app.store

    def publish(stored: Sequence[Message]) -> None:
        for message in stored:
            app.hub.emit(MessageStored(message=message))
        if stored:
            app.coverage.nudge()

    await app.supervisor.start(
        ActorSpec(
            name=store.writer.mailbox.name,
            mailbox=store.writer.mailbox,
            restart=Restart.VITAL,
            stop_budget_s=writer_actor.STOP_BUDGET_S,
            run=partial(
                writer_actor.run,
                writer=store.writer,
                database=store.database,
                journal=store.journal,
                publish=publish,
                swapped=store.readers.renew,
            ),
        )
    )
    await _remember(app)
    await app.supervisor.start(
        ActorSpec(
            name=app.reindexer.mailbox.name,
            mailbox=app.reindexer.mailbox,
            stop_budget_s=reindex_actor.STOP_BUDGET_S,
            run=partial(
                reindex_actor.run,
                reindexer=app.reindexer,
                places=Places(app.paths.database),
                min_tokens=config.auto_rag.min_message_tokens,
                writer=store.writer,
                readers=store.readers,
                swapped=partial(_recount_vectors, app),
            ),
        )
    )
    if config.embedding.enabled:
        await app.supervisor.start(
            ActorSpec(
                name=app.embedder.mailbox.name,
                mailbox=app.embedder.mailbox,
                run=partial(
                    embedder_actor.run,
                    embedder=app.embedder,
                    config=config.embedding,
                    folder=config.embedding.path or app.paths.models_dir / config.embedding.model,
                    min_tokens=config.auto_rag.min_message_tokens,
                    writer=store.writer,
                    readers=store.readers,
                ),
            )
        )
    if app.router.uses_local:
        process = LocalProcess(local_settings(config.local_model, app.paths.models_dir), app.local)
        await app.supervisor.start(process.spec())
    await app.router.prepare()
    await app.mcp.start(app.supervisor)
    await app.supervisor.start(
        ActorSpec(
            name=coverage_actor.ACTOR_NAME,
            run=partial(
                coverage_actor.run,
                coverage=app.coverage,
                readers=store.readers,
                writer=store.writer,
                wake_embedder=app.embedder.nudge,
                sliding_window=config.context.sliding_window,
                with_summaries=config.summaries.enabled,
            ),
            stop_budget_s=1,
        )
    )
    await app.supervisor.start(
        ActorSpec(
            name=app.scheduler.mailbox.name,
            mailbox=app.scheduler.mailbox,
            stop_budget_s=config.shutdown.grace_s,
            run=partial(scheduler_actor.run, scheduler=app.scheduler, services=app.runs),
        )
    )
    if config.summaries.enabled:
        await app.supervisor.start(
            ActorSpec(
                name=app.summarizer.mailbox.name,
                mailbox=app.summarizer.mailbox,
                run=partial(summarizer_actor.run, summarizer=app.summarizer, services=app.summaries),
            )
        )
    await app.supervisor.start(
        ActorSpec(
            name=files_actor.ACTOR_NAME,
            run=partial(
                files_actor.run,
                files=app.memory_files,
                workspace=app.paths.workspace,
                writer=store.writer,
                readers=store.readers,
                embed=app.embedder.nudge,
            ),
            stop_budget_s=2,
        )
    )
    await app.supervisor.start(
        ActorSpec(
            name=compactor_actor.ACTOR_NAME,
            run=partial(compactor_actor.run, compactor=app.compactor, compact=app.forgetter.compact_files),
            stop_budget_s=1,
        )
    )
    if config.topics.enabled:
        await app.supervisor.start(_archivist(app))
    await app.supervisor.start(
        ActorSpec(name="health.watch", run=partial(watch, health=app.health, events=app.hub), stop_budget_s=1)
    )


def _archivist(app: App) -> ActorSpec:
    services = ArchivistServices(
        config=app.config.topics,
        readers=app.store.readers,
        writer=app.store.writer,
        embedder=app.embedder,
        asker=app.asker,
        metrics=app.topic_metrics,
        clock=app.clock,
        on_topic=[app.drawer],
    )
    return ActorSpec(
        name=archivist_actor.ACTOR_NAME,
        run=partial(archivist_actor.run, archivist=app.archivist, services=services),
        stop_budget_s=1,
    )


async def _remember(app: App) -> None:
    """Take over from the store what was spent today, and how far off token estimates were."""
    today = app.accounts.budget.today()
    app.accounts.budget.restore(today, await app.store.readers.run(usage.total, UsageFilters(since=today)))
    if await app.store.readers.run(meta.owes_compaction):
        app.compactor.nudge()
    app.correction.seed(await app.store.readers.run(usage.corrections, CORRECTION_TURNS))


async def _recount_vectors(app: App) -> None:
    """Tell the embedder what another database has; it looks by itself for what is missing there."""
    if app.embedder.status.state is EmbedderState.READY:
        min_tokens = app.config.auto_rag.min_message_tokens
        embedded = await app.store.readers.run(vectors.count_embedded)
        waiting = await app.store.readers.run(vectors.count_unembedded, min_tokens)
        app.embedder.count(embedded=embedded, waiting=waiting)
        app.embedder.nudge()
    app.memory_files.nudge()  # the new database has no pieces of files


async def recover_chats(app: App) -> None:
    """Let the chats answer what the last run left unanswered."""
    since = iso(app.clock.now() - app.config.recovery.answer_pending_s)
    await app.directory.recover(await app.store.readers.run(messages.pending_chats, since))


async def _stop(app: App) -> None:
    """Stop the parts in stages; each has its own budget."""
    supervisor, shutdown = app.supervisor, app.config.shutdown
    app.approvals.close()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(supervisor.stop, app.scheduler.mailbox.name, "shutdown")
        for name in app.directory.close("the server is shutting down"):
            nursery.start_soon(supervisor.stop, name, "shutdown")
    await supervisor.stop("health.watch", "shutdown")
    async with trio.open_nursery() as nursery:
        app.mcp.stop(supervisor, nursery)
    await supervisor.stop(app.summarizer.mailbox.name, "shutdown")
    await supervisor.stop(coverage_actor.ACTOR_NAME, "shutdown")
    await supervisor.stop(files_actor.ACTOR_NAME, "shutdown")
    await supervisor.stop(compactor_actor.ACTOR_NAME, "shutdown")
    if app.config.topics.enabled:
        await supervisor.stop(archivist_actor.ACTOR_NAME, "shutdown")
    await supervisor.stop("llm.local", "shutdown")
    await app.router.aclose()
    if app.embedder.status.state is EmbedderState.READY:
        app.embedder.nudge()
        with trio.move_on_after(shutdown.embed_drain_s):
            await app.embedder.wait_caught_up()
    await supervisor.stop(app.embedder.mailbox.name, "shutdown")
    await supervisor.stop(app.reindexer.mailbox.name, "shutdown")
    await supervisor.stop(app.store.writer.mailbox.name, "shutdown")
    log.info("stopped")
