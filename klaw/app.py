"""The composition root: builds every part, starts it in order, stops it in stages.

Start: store, writer, embedder, local model, listener, admin socket; then the chats that have unanswered messages. Stop
is the reverse, by closing mailboxes stage by stage, so that each part can finish what it has: no new connections, then
the chats' last turns, then the embedder's backlog, then the writer's last checkpoint. A failed writer or listener ends
the process with an error.
"""

import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial

import attrs
import structlog
import trio

from klaw.actor.clock import Clock, SystemClock, iso, new_id
from klaw.actor.metrics import Metrics
from klaw.actor.supervisor import ActorSpec, Restart, Supervisor
from klaw.actor.threads import Threads
from klaw.chats.compose import Composer
from klaw.chats.correction import TokenCorrection
from klaw.chats.directory import ChatDirectory
from klaw.chats.health import GatheredHealth
from klaw.chats.turn import TurnServices
from klaw.chats.workspace import Workspace
from klaw.config.paths import Paths, ensure_private_dir, folder_of_user
from klaw.config.schema import LOCAL_PROVIDER, EngineConfig
from klaw.domain.embedding import EmbedderState
from klaw.domain.events import MessageStored
from klaw.domain.message import Message
from klaw.gateway.hub import Hub
from klaw.health import (
    coverage_problems,
    embedder_problems,
    local_model_problems,
    supervisor_problems,
    task_problems,
    watch,
)
from klaw.llm.local.process import LocalProcess, LocalSettings
from klaw.llm.local.provider import LocalProvider
from klaw.llm.local.state import LocalModel
from klaw.llm.router import Router
from klaw.llm.slots import Slots
from klaw.memory import archivist as archivist_actor
from klaw.memory import coverage as coverage_actor
from klaw.memory import embedder as embedder_actor
from klaw.memory.archivist import Archivist, ArchivistServices, OnTopic
from klaw.memory.coverage import Coverage
from klaw.memory.embedder import Embedder
from klaw.memory.recall import Recall
from klaw.memory.search import MemorySearch
from klaw.memory.topics.asking import Asker
from klaw.memory.topics.metrics import TopicMetrics
from klaw.memory.topics.search import TopicSearch
from klaw.store import writer as writer_actor
from klaw.store.journal import Journal
from klaw.store.reindex import actor as reindex_actor
from klaw.store.reindex.actor import Reindexer
from klaw.store.reindex.places import Places
from klaw.store.sql import messages, vectors
from klaw.store.store import Store, open_store
from klaw.subagents import scheduler as scheduler_actor
from klaw.subagents.localzone import default_zone
from klaw.subagents.run import RunServices
from klaw.subagents.scheduler import Scheduler
from klaw.subagents.service import Scheduling
from klaw.subagents.tools import scheduling_tools
from klaw.toolbox.builtin.clock import clock_tools
from klaw.toolbox.builtin.files import file_tools
from klaw.toolbox.builtin.skills import skill_tools
from klaw.toolbox.executor import Executor
from klaw.toolbox.overflow import Overflow
from klaw.toolbox.registry import Toolbox
from klaw.toolbox.skills.catalogue import Catalogue

log = structlog.get_logger("klaw.app")


@attrs.frozen(kw_only=True)
class App:
    """The running parts, for the admin socket and for tests."""

    config: EngineConfig
    paths: Paths
    clock: Clock
    started_at: float
    store: Store
    supervisor: Supervisor
    reindexer: Reindexer
    embedder: Embedder
    recall: Recall
    search: MemorySearch
    topic_search: TopicSearch
    local: LocalModel
    router: Router
    slots: Slots
    scheduler: Scheduler
    scheduling: Scheduling
    """What users can ask of tasks and runs."""
    executor: Executor
    """Carries out tool calls; its toolbox holds all tools."""
    runs: RunServices
    """What the runs of tasks and subagents share."""
    hub: Hub
    coverage: Coverage
    metrics: Metrics
    topic_metrics: TopicMetrics
    archivist: Archivist
    on_topic: list[OnTopic]
    """What is called once for every new topic; filled before the start."""
    health: GatheredHealth
    directory: ChatDirectory
    threads: tuple[Threads, ...]


@asynccontextmanager
async def running(config: EngineConfig, paths: Paths, *, fsync: Callable[[int], None] = os.fsync) -> AsyncIterator[App]:
    """Everything but the listeners, running; stopped in stages in the end.

    Args:
        config: the configuration.
        paths: where files are.
        fsync: what the journal calls; benchmarks imitate a slow disk with it.

    Raises:
        StorageError: the store cannot be opened.
        ExceptionGroup: a vital actor failed.
    """
    clock = SystemClock()
    ensure_private_dir(paths.data_dir)
    journal = Journal(paths.data_dir, checkpoint_bytes=config.store.checkpoint_bytes, fsync=fsync)
    async with (
        open_store(paths.database, journal, readers=config.store.readers) as store,
        trio.open_nursery() as nursery,
    ):
        app = _build(config, paths, clock, store, Supervisor(nursery, clock))
        await _start(app)
        yield app
        await _stop(app)
        nursery.cancel_scope.cancel(reason="all parts have stopped")


def _build(config: EngineConfig, paths: Paths, clock: Clock, store: Store, supervisor: Supervisor) -> App:
    embedder = Embedder(clock, enabled=config.embedding.enabled)
    coverage = Coverage(clock)
    local = LocalModel()
    router = Router(config, lambda: LocalProvider(local, ready_within_s=config.local_model.start_timeout_s))
    sources: list[Callable[[], Mapping[str, str]]] = [
        partial(embedder_problems, embedder),
        partial(coverage_problems, coverage),
        partial(supervisor_problems, supervisor),
        router.problems,
    ]
    if router.uses_local:
        sources.append(partial(local_model_problems, local, only=config.routing.default_provider == LOCAL_PROVIDER))
    health = GatheredHealth(sources)
    hub = Hub()
    recall = Recall(store.readers, embedder, config.auto_rag, clock)
    files, slots = Threads("files", 2), Slots(config.processing.max_concurrent_llm)
    toolbox = Toolbox(config.tools.disabled)
    # Threads of their own: slow file tools must not hold back the reading of prompt files.
    tool_files, skills = Threads("tool files", 4), Catalogue(paths.workspace)
    toolbox.register(*clock_tools(clock))
    toolbox.register(*file_tools(paths.workspace, tool_files, config.tools.max_output_chars))
    toolbox.register(*skill_tools(skills, tool_files))
    executor = Executor(
        toolbox=toolbox,
        overflow=Overflow(files, partial(folder_of_user, paths.workspace), new_id),
        max_output_chars=config.tools.max_output_chars,
        timeout_s=config.tools.timeout_s,
    )
    services = TurnServices(
        config=config,
        writer=store.writer,
        readers=store.readers,
        embedder=embedder,
        recall=recall,
        router=router,
        slots=slots,
        workspace=Workspace(paths.workspace, paths.data_dir, skills),
        files=files,
        events=hub,
        clock=clock,
        new_id=new_id,
        composer=Composer(clock=clock, new_id=new_id),
        correction=TokenCorrection(),
        executor=executor,
    )
    scheduler = Scheduler()
    zone = default_zone(config.subagents.zone)
    scheduling = Scheduling(scheduler, store.readers, store.writer, config, clock, default_zone=zone)
    toolbox.register(*scheduling_tools(scheduling, scheduler))
    sources.append(partial(task_problems, scheduler))
    metrics = Metrics()
    topic_metrics = TopicMetrics(metrics)
    topic_search = TopicSearch(store.readers, embedder, clock, topic_metrics)
    return App(
        config=config,
        paths=paths,
        clock=clock,
        started_at=clock.now(),
        store=store,
        supervisor=supervisor,
        reindexer=Reindexer(),
        embedder=embedder,
        recall=recall,
        search=MemorySearch(store.readers, embedder, clock, topic_search),
        topic_search=topic_search,
        local=local,
        router=router,
        slots=slots,
        scheduler=scheduler,
        scheduling=scheduling,
        executor=executor,
        runs=RunServices(
            config=config,
            writer=store.writer,
            readers=store.readers,
            router=router,
            slots=slots,
            workspace=services.workspace,
            conversations=paths.conversations,
            files=files,
            executor=executor,
            correction=services.correction,
            said=embedder.nudge,
            clock=clock,
            new_id=new_id,
        ),
        hub=hub,
        coverage=coverage,
        metrics=metrics,
        topic_metrics=topic_metrics,
        archivist=Archivist(),
        on_topic=[],
        health=health,
        directory=ChatDirectory(supervisor, services, health),
        threads=(files, tool_files),
    )


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
        local = config.local_model
        process = LocalProcess(
            LocalSettings(
                model=local.model,
                file=local.path or app.paths.models_dir / local.model / "model.gguf",
                threads=local.threads,
                context_tokens=local.context_tokens,
                parallel=local.parallel,
                start_timeout_s=local.start_timeout_s,
            ),
            app.local,
        )
        await app.supervisor.start(process.spec())
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
        asker=Asker(router=app.router, slots=app.slots, temperature=app.config.llm.temperature),
        metrics=app.topic_metrics,
        clock=app.clock,
        on_topic=app.on_topic,
    )
    return ActorSpec(
        name=archivist_actor.ACTOR_NAME,
        run=partial(archivist_actor.run, archivist=app.archivist, services=services),
        stop_budget_s=1,
    )


async def _recount_vectors(app: App) -> None:
    """Tell the embedder what another database has; it looks by itself for what is missing there."""
    if app.embedder.status.state is EmbedderState.READY:
        min_tokens = app.config.auto_rag.min_message_tokens
        embedded = await app.store.readers.run(vectors.count_embedded)
        waiting = await app.store.readers.run(vectors.count_unembedded, min_tokens)
        app.embedder.count(embedded=embedded, waiting=waiting)
        app.embedder.nudge()


async def recover_chats(app: App) -> None:
    """Let the chats answer what the last run left unanswered."""
    since = iso(app.clock.now() - app.config.recovery.answer_pending_s)
    await app.directory.recover(await app.store.readers.run(messages.pending_chats, since))


async def _stop(app: App) -> None:
    """Stop the parts in stages; each has its own budget."""
    supervisor, shutdown = app.supervisor, app.config.shutdown
    async with trio.open_nursery() as nursery:
        nursery.start_soon(supervisor.stop, app.scheduler.mailbox.name, "shutdown")
        for name in app.directory.close("the server is shutting down"):
            nursery.start_soon(supervisor.stop, name, "shutdown")
    await supervisor.stop("health.watch", "shutdown")
    await supervisor.stop(coverage_actor.ACTOR_NAME, "shutdown")
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
