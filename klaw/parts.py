"""The parts of a running Klaw: what they are, and how they are made and connected. Nothing is started here."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import attrs

from klaw.actor.clock import Clock, new_id
from klaw.actor.metrics import Metrics
from klaw.actor.supervisor import Supervisor
from klaw.actor.threads import Threads
from klaw.chats.compose import Composer
from klaw.chats.correction import TokenCorrection
from klaw.chats.directory import ChatDirectory
from klaw.chats.health import GatheredHealth
from klaw.chats.models import ModelChoice
from klaw.chats.services import TurnServices
from klaw.chats.workspace import Workspace
from klaw.config.paths import Paths
from klaw.config.schema import LOCAL_PROVIDER, EngineConfig
from klaw.gateway.hub import Hub
from klaw.health import (
    coverage_problems,
    embedder_problems,
    local_model_problems,
    summary_problems,
    supervisor_problems,
    task_problems,
)
from klaw.llm.budget import Budget
from klaw.llm.local.provider import LocalProvider
from klaw.llm.local.state import LocalModel
from klaw.llm.meter import Accounts
from klaw.llm.registry import Registry
from klaw.llm.router import Router
from klaw.llm.slots import Slots
from klaw.memory.archivist import Archivist
from klaw.memory.coverage import Coverage
from klaw.memory.embed.embedder import Embedder
from klaw.memory.facts.facts import Facts
from klaw.memory.facts.memory_files import MemoryFiles
from klaw.memory.forget.compactor import Compactor
from klaw.memory.forget.forget import Forgetter
from klaw.memory.people.people import People
from klaw.memory.recall.recall import Recall
from klaw.memory.search.search import MemorySearch
from klaw.memory.slash import MemoryAnswers
from klaw.memory.slash_forget import ForgetAnswers
from klaw.memory.spending import Spending
from klaw.memory.summaries.making import SummaryServices
from klaw.memory.summaries.summarizer import Summarizer
from klaw.memory.topics.asking import Asker
from klaw.memory.topics.choosing import LOCAL_S, REMOTE_S, TopicChooser
from klaw.memory.topics.control import TopicControl
from klaw.memory.topics.drawer import FactDrawer
from klaw.memory.topics.metrics import TopicMetrics
from klaw.memory.topics.people_drawer import PeopleDrawer
from klaw.memory.topics.search import TopicSearch
from klaw.memory.topics.slash import TopicAnswers
from klaw.operations.slash import OperationCommands
from klaw.store.reindex.actor import Reindexer
from klaw.store.store import Store
from klaw.subagents.localzone import default_zone
from klaw.subagents.run import RunServices
from klaw.subagents.scheduler import Scheduler
from klaw.subagents.service import Scheduling
from klaw.subagents.slash import TaskAnswers
from klaw.subagents.tools import scheduling_tools
from klaw.toolbox.approvals import Approvals
from klaw.toolbox.builtin.clock import clock_tools
from klaw.toolbox.builtin.files import file_tools
from klaw.toolbox.builtin.memory import MemoryParts, memory_tools
from klaw.toolbox.builtin.messages import message_tools
from klaw.toolbox.builtin.skills import skill_tools
from klaw.toolbox.executor import Executor
from klaw.toolbox.mcp.servers import McpServers
from klaw.toolbox.outside import outside_tools
from klaw.toolbox.overflow import Overflow
from klaw.toolbox.registry import Toolbox
from klaw.toolbox.skills.catalogue import Catalogue


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
    facts: Facts
    people: People
    memory_files: MemoryFiles
    summarizer: Summarizer
    summaries: SummaryServices
    local: LocalModel
    router: Router
    slots: Slots
    scheduler: Scheduler
    scheduling: Scheduling
    """What users can ask of tasks and runs."""
    approvals: Approvals
    executor: Executor
    """Carries out tool calls; its toolbox holds all tools."""
    runs: RunServices
    """What the runs of tasks and subagents share."""
    accounts: Accounts
    correction: TokenCorrection
    mcp: McpServers
    hub: Hub
    coverage: Coverage
    metrics: Metrics
    topic_metrics: TopicMetrics
    archivist: Archivist
    asker: Asker
    """Of questions in the background."""
    drawer: FactDrawer
    forgetter: Forgetter
    compactor: Compactor
    topic_control: TopicControl
    health: GatheredHealth
    directory: ChatDirectory
    threads: tuple[Threads, ...]


def build(config: EngineConfig, paths: Paths, clock: Clock, store: Store, supervisor: Supervisor) -> App:
    """Make every part; nothing runs yet."""
    embedder = Embedder(clock, enabled=config.embedding.enabled)
    coverage, metrics = Coverage(clock), Metrics()
    local = LocalModel()
    registry = Registry(config, clock)
    router = Router(
        config, lambda: LocalProvider(local, ready_within_s=config.local_model.start_timeout_s), registry.context_tokens
    )
    sources: list[Callable[[], Mapping[str, str]]] = [
        partial(embedder_problems, embedder),
        partial(coverage_problems, coverage),
        partial(supervisor_problems, supervisor),
        router.problems,
    ]
    llm = config.llm
    accounts = Accounts(
        registry=registry,
        budget=Budget(llm.daily_budget, llm.daily_tokens, llm.budget_warn_share, clock),
    )
    sources += [accounts.budget.problems, registry.problems]
    if router.uses_local:
        sources.append(partial(local_model_problems, local, only=config.routing.default_provider == LOCAL_PROVIDER))
    toolbox = Toolbox(config.tools.disabled)
    mcp = McpServers(config.mcp, toolbox, clock, paths.workspace)
    sources.append(mcp.problems)
    health = GatheredHealth(sources)
    hub = Hub()
    recall = Recall(store.readers, embedder, config.auto_rag, clock)
    correction = TokenCorrection()
    files, slots = Threads("files", 2), Slots(config.processing.max_concurrent_llm)
    # Threads of their own: slow file tools must not hold back the reading of prompt files.
    tool_files, skills = Threads("tool files", 4), Catalogue(paths.workspace)
    composer = Composer(clock=clock, new_id=new_id)
    toolbox.register(*clock_tools(clock), *message_tools(store.readers, store.writer, composer.own, embedder.nudge))
    toolbox.register(*file_tools(paths.workspace, tool_files, config.tools.max_output_chars))
    toolbox.register(*skill_tools(skills, tool_files))
    toolbox.register(*outside_tools(config.tools, paths.workspace, tool_files))
    approvals = Approvals(
        events=hub, clock=clock, new_id=new_id, wait_s=config.tools.exec.approval_s, watchers=hub.watchers
    )
    topic_metrics = TopicMetrics(metrics)
    topic_search = TopicSearch(store.readers, embedder, clock, topic_metrics)
    search = MemorySearch(store.readers, embedder, clock, topic_search)
    facts = Facts(store.writer, store.readers, embedder, clock, new_id)
    parts = MemoryParts(
        search=search,
        facts=facts,
        writer=store.writer,
        readers=store.readers,
        clock=clock,
        topics=config.topics.inject != "off",
    )
    toolbox.register(*memory_tools(parts))
    executor = Executor(
        toolbox=toolbox,
        overflow=Overflow(tool_files, paths.workspace, new_id),
        max_output_chars=config.tools.max_output_chars,
        timeout_s=config.tools.timeout_s,
        approve=approvals.approve,
    )
    summarizer = Summarizer(clock, enabled=config.summaries.enabled)
    sources.append(partial(summary_problems, summarizer))
    services = TurnServices(
        config=config,
        writer=store.writer,
        readers=store.readers,
        embedder=embedder,
        recall=recall,
        topics=_chooser(config, topic_search, topic_metrics, store, embedder, router, slots, clock),
        router=router,
        slots=slots,
        workspace=Workspace(paths.workspace, paths.data_dir, skills),
        files=files,
        events=hub,
        clock=clock,
        new_id=new_id,
        composer=composer,
        correction=correction,
        executor=executor,
        accounts=accounts,
        models=ModelChoice(config=config, router=router, registry=accounts.registry),
        turn_ended=summarizer.nudge,
    )
    scheduler = Scheduler()
    scheduling = Scheduling(
        scheduler, store.readers, store.writer, config, clock, default_zone=default_zone(config.subagents.zone)
    )
    toolbox.register(*scheduling_tools(scheduling, scheduler))
    sources.append(partial(task_problems, scheduler))
    reindexer = Reindexer()
    spending = Spending(accounts, store.writer, clock)
    asker = Asker(
        router=router,
        slots=slots,
        temperature=llm.temperature,
        wrap=lambda route: accounts.meter().wrap(route),
        spending=spending,
    )
    compactor, memory_files = Compactor(), MemoryFiles()

    def changed() -> None:
        for part in (embedder, memory_files, scheduler):
            part.nudge()

    forgetter = Forgetter(
        writer=store.writer,
        readers=store.readers,
        data_dir=paths.data_dir,
        workspace=paths.workspace,
        clock=clock,
        files=Threads("forgetting", 1),
        reindexing=lambda: reindexer.status.state == "running",
        changed=changed,
        compact=compactor.nudge,
        stop_run=scheduling.end,
    )
    people = People(store.writer, store.readers, clock, new_id)
    archivist = Archivist()
    topic_control = TopicControl(
        config=config.topics,
        readers=store.readers,
        writer=store.writer,
        embedder=embedder,
        asker=asker,
        clock=clock,
        changed=archivist.nudge,
    )
    answers = MemoryAnswers(
        store.readers,
        TopicAnswers(store.readers, topic_search, enabled=config.topics.enabled),
        ForgetAnswers(forgetter, clock),
    )
    slash = OperationCommands()
    app = App(
        config=config,
        paths=paths,
        clock=clock,
        started_at=clock.now(),
        store=store,
        supervisor=supervisor,
        reindexer=reindexer,
        forgetter=forgetter,
        compactor=compactor,
        embedder=embedder,
        recall=recall,
        search=search,
        topic_search=topic_search,
        facts=facts,
        people=people,
        memory_files=memory_files,
        summarizer=summarizer,
        summaries=SummaryServices(
            config=config,
            writer=store.writer,
            readers=store.readers,
            route=lambda: router.route(task="summarization"),
            spending=spending,
            slots=slots,
            correction=services.correction,
            files=files,
            data_dir=paths.data_dir,
            clock=clock,
        ),
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
            accounts=accounts,
            correction=correction,
            said=embedder.nudge,
            clock=clock,
            new_id=new_id,
        ),
        approvals=approvals,
        accounts=accounts,
        correction=correction,
        mcp=mcp,
        hub=hub,
        coverage=coverage,
        metrics=metrics,
        topic_metrics=topic_metrics,
        archivist=archivist,
        topic_control=topic_control,
        asker=asker,
        drawer=FactDrawer(asker, facts, PeopleDrawer(people, store.readers), store.readers),
        health=health,
        directory=ChatDirectory(supervisor, services, health, TaskAnswers(scheduling), answers, slash),
        threads=(files, tool_files, services.workspace.threads),
    )
    slash.parts = operation_parts(app)
    return app


def operation_parts(app: App) -> dict[str, Any]:
    """What handlers of operations may ask for, by name."""
    return {**attrs.asdict(app, recurse=False), "readers": app.store.readers, "writer": app.store.writer}


def _chooser(
    config: EngineConfig,
    search: TopicSearch,
    metrics: TopicMetrics,
    store: Store,
    embedder: Embedder,
    router: Router,
    slots: Slots,
    clock: Clock,
) -> TopicChooser | None:
    """What chooses topics for prompts; None when none are to come in."""
    if config.topics.inject != "auto":
        return None
    names, budget_ms = config.routing.tasks.reranker, config.topics.time_budget_ms
    is_local = any(name.partition("/")[0] == LOCAL_PROVIDER for name in names)
    usual_s = LOCAL_S if is_local else REMOTE_S
    return TopicChooser(
        search=search,
        readers=store.readers,
        embedder=embedder,
        asker=Asker(router=router, slots=slots, temperature=config.llm.temperature) if names else None,
        metrics=metrics,
        threshold=config.auto_rag.relevance_threshold,
        time_budget_s=budget_ms / 1000 if budget_ms is not None else usual_s,
        clock=clock,
    )
