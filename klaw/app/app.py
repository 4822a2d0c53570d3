"""The composition root: builds every part, starts it in order, stops it in stages.

Stopping lets each part finish what it has: no new connections, then the chats' last turns, then the embedder's backlog,
then the writer's last checkpoint. A failed writer or listener ends the process with an error."""

import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

import attrs
import structlog
import trio

from klaw import health
from klaw.actor.clock import Clock, SystemClock, iso
from klaw.actor.supervisor import ActorSpec, Supervisor
from klaw.agent.agent import Agent
from klaw.agent.workspace import Workspace
from klaw.chats.directory import ChatDirectory
from klaw.config.paths import Paths, ensure_private_dir
from klaw.config.schema import EngineConfig
from klaw.context.compose import Composer
from klaw.core import Core
from klaw.domain.events import MessageStored
from klaw.domain.message import Message
from klaw.gateway.hub import Hub
from klaw.knowledge import parts as knowledge_parts
from klaw.knowledge.reading.document_text import document_text
from klaw.llm import client as llm_client
from klaw.llm.router import configured_models
from klaw.llm.trial import try_abilities
from klaw.llm.voice import Voice
from klaw.memory import parts as memory_parts
from klaw.operations.handler import Parts
from klaw.operations.slash import OperationCommands
from klaw.runs import parts as task_parts
from klaw.store.engine import writer as writer_actor
from klaw.store.engine.journal import Journal
from klaw.store.kinds import pending
from klaw.store.rebuild import actor as reindex_actor
from klaw.store.rebuild.actor import Reindexer
from klaw.store.rebuild.files import Places
from klaw.store.rebuild.values import Progress
from klaw.store.store import open_store
from klaw.toolbox import tools as tool_parts

log = structlog.get_logger("klaw.app")


@attrs.frozen(kw_only=True)
class App(Parts):
    hub: Hub


@asynccontextmanager
async def running(
    config: EngineConfig,
    paths: Paths,
    *,
    fsync: Callable[[int], None] = os.fsync,
    report: Callable[[Progress], None] = lambda _step: None,
    clock: Clock | None = None,
) -> AsyncIterator[App]:
    """Run everything but the listeners, and stop it in stages. ``fsync``: what the journal calls; ``report``: see
    ``open_store``. Raises StorageError: the store cannot be opened; ExceptionGroup: a vital actor failed."""
    clock, hub = clock or SystemClock(), Hub()
    ensure_private_dir(paths.data_dir)
    journal = Journal(paths.data_dir, checkpoint_bytes=config.store.checkpoint_bytes, fsync=fsync)
    async with (
        open_store(paths.database, journal, readers=config.store.readers, report=report) as store,
        trio.open_nursery() as nursery,
    ):
        supervisor = Supervisor(nursery, clock)
        core = Core(config=config, paths=paths, clock=clock, store=store, events=hub, supervisor=supervisor)
        app = build(core, hub)
        await _start(app)
        nursery.start_soon(app.llm.registry.know, *configured_models(config))  # so that no turn has to wait for it
        yield app
        await _stop(app)
        nursery.cancel_scope.cancel(reason="all parts have stopped")


def build(core: Core, hub: Hub) -> App:
    core.health.add(partial(health.supervisor_problems, core.supervisor), core.changing.problems)
    reindexer = Reindexer(
        places=Places(core.paths.database),
        min_tokens=core.config.auto_rag.min_message_tokens,
        writer=core.writer,
        readers=core.readers,
    )
    tasks, llm = task_parts.build(core), llm_client.build(core)
    memory = memory_parts.build(
        core, llm, reindexer, stop_run=tasks.scheduling.end, tasks_changed=tasks.scheduler.nudge
    )
    knowledge = knowledge_parts.build(core, llm, memory.embedder)
    composer = Composer(clock=core.clock, new_id=core.new_id)
    tools = tool_parts.build(core, llm, memory, composer, hub.watchers, tasks.tools, document_text)
    workspace = Workspace(core.paths.workspace, core.paths.data_dir, tools.skills)
    made = Agent(
        core=core,
        llm=llm,
        memory=memory,
        tools=tools,
        workspace=workspace,
        composer=composer,
        dialogue=knowledge.dialogue,
        files=knowledge.files,
    )
    slash = OperationCommands()
    app = App(
        core=core,
        hub=hub,
        reindexer=reindexer,
        llm=llm,
        memory=memory,
        knowledge=knowledge,
        tools=tools,
        agent=made,
        tasks=tasks,
        chats=ChatDirectory(made, slash),
        voice=Voice(llm),
    )
    slash.parts = app
    return app


async def _start(app: App) -> None:
    await _start_store(app)
    await app.memory.start_embedder()
    await app.llm.start(partial(try_abilities, app.core.live(lambda now: now), app.llm))
    await app.tools.start()
    await app.core.supervisor.start(app.tasks.scheduler.spec(app.agent))
    await app.memory.start()
    await app.knowledge.start()
    await app.core.supervisor.start(health.spec(app.core.health.problems, app.hub))


async def _start_store(app: App) -> None:
    store, supervisor = app.core.store, app.core.supervisor

    def publish(stored: Sequence[Message]) -> None:
        for message in stored:
            app.hub.emit(MessageStored(message=message))
        if stored:
            app.memory.coverage.nudge()

    write = partial(
        writer_actor.run,
        writer=store.writer,
        database=store.database,
        journal=store.journal,
        publish=publish,
        swapped=store.readers.renew,
    )
    await supervisor.start(
        ActorSpec(
            name=store.writer.mailbox.name,
            mailbox=store.writer.mailbox,
            vital=True,
            stop_budget_s=writer_actor.STOP_BUDGET_S,
            run=write,
        )
    )
    await supervisor.start(app.core.attachments.spec())
    await app.llm.remember()

    async def swapped() -> None:
        await app.memory.recount()
        app.knowledge.indexer.nudge()

    reindex = partial(app.reindexer.run, swapped=swapped)
    budget_s = reindex_actor.STOP_BUDGET_S
    await supervisor.start(ActorSpec(name=reindex_actor.ACTOR_NAME, stop_budget_s=budget_s, run=reindex))


async def recover_chats(app: App) -> None:
    """Let the chats answer what the last run left unanswered."""
    since = iso(app.core.clock.now() - app.core.config.recovery.answer_pending_s)
    await app.chats.recover(await app.core.readers.run(pending.pending_chats, since))


async def _stop(app: App) -> None:
    supervisor = app.core.supervisor
    app.tools.approvals.close()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(supervisor.stop, app.tasks.scheduler.mailbox.name, "shutdown")
        for name in app.chats.close("the server is shutting down"):
            nursery.start_soon(supervisor.stop, name, "shutdown")
    await supervisor.stop(health.WATCH, "shutdown")
    await app.tools.stop()
    await app.knowledge.stop()
    await app.memory.stop()
    await app.llm.stop()
    await app.memory.stop_embedder()
    await supervisor.stop(app.core.attachments.spec().name, "shutdown")
    await supervisor.stop(reindex_actor.ACTOR_NAME, "shutdown")
    await supervisor.stop(app.core.writer.mailbox.name, "shutdown")
    log.info("stopped")
