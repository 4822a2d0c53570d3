"""The parts of the memory, how they are connected, and the actors that work in its background."""

from collections.abc import Awaitable, Callable

import attrs
import trio

from klaw.actor.supervisor import ActorSpec
from klaw.actor.threads import Threads
from klaw.config.llm import LOCAL_PROVIDER
from klaw.config.schema import EngineConfig
from klaw.core import Core
from klaw.domain.names import UserId
from klaw.llm.client import Llm
from klaw.memory.archivist import Archivist
from klaw.memory.background_llm import Asker
from klaw.memory.coverage import Coverage
from klaw.memory.embed.embedder import Embedder, EmbedderState
from klaw.memory.embed.remote import remote_of
from klaw.memory.embed.worker import Worker
from klaw.memory.facts.facts import Facts
from klaw.memory.facts.memory_files import MemoryFiles
from klaw.memory.facts.people import People
from klaw.memory.forget.forget import Forgetter
from klaw.memory.recall.expansion import QuestionExpander
from klaw.memory.recall.recall import CandidateReranker, Recall
from klaw.memory.search.search import MemorySearch
from klaw.memory.summaries.making import SummaryMaker
from klaw.memory.summaries.summarizer import Summarizer
from klaw.memory.titles import Titler
from klaw.memory.topics.chooser import LOCAL_S, REMOTE_S, TopicChooser
from klaw.memory.topics.control import TopicControl
from klaw.memory.topics.fact_extractor import FactExtractor
from klaw.memory.topics.maker import TopicMaker
from klaw.memory.topics.people_extractor import PeopleExtractor
from klaw.memory.topics.search import TopicMetrics, TopicSearch
from klaw.store.engine import meta
from klaw.store.rebuild.actor import Reindexer


@attrs.define(kw_only=True, eq=False)
class MemoryParts:
    core: Core
    embedder: Embedder
    recall: Recall
    search: MemorySearch
    topic_search: TopicSearch
    chooser: TopicChooser | None
    """Chooses topics for prompts; None: none come in by themselves."""
    topic_control: TopicControl
    facts: Facts
    people: People
    files: MemoryFiles
    coverage: Coverage
    summarizer: Summarizer
    archivist: Archivist
    forgetter: Forgetter
    titler: Titler
    metrics: TopicMetrics
    _llm: Llm
    _embedding: Worker
    _background: tuple[ActorSpec, ...]
    """The actors beside the embedder that always run, in the order of their start."""

    async def start_embedder(self) -> None:
        core = self.core
        if await core.readers.run(meta.owes_compaction):
            self.forgetter.compactor.nudge()
        if core.config.embedding.enabled:
            await core.supervisor.start(self._embedding.spec())

    async def start(self) -> None:
        for spec in self._background:
            await self.core.supervisor.start(spec)
        await self._start_wanted()

    async def stop(self) -> None:
        for spec in (*self._background, self.summarizer.spec(), self.archivist.spec()):
            await self.core.supervisor.stop(spec.name, "shutdown")

    async def _start_wanted(self) -> None:
        """Start what is switched on, and stop what is not."""
        config, supervisor = self.core.config, self.core.supervisor
        for part, wanted in ((self.summarizer, config.summarises), (self.archivist, config.makes_topics)):
            spec = part.spec()
            if not wanted:
                await supervisor.stop(spec.name, "switched off")
            elif not supervisor.alive(spec.name):
                await supervisor.start(spec)
            else:
                part.nudge()

    async def settings_changed(self, _before: EngineConfig) -> None:
        config = self.core.config
        self.coverage.sliding_window = config.context.sliding_window
        self.coverage.with_summaries = config.summarises
        self.recall.reranker = _reranker(config, self._llm)
        self.chooser = _chooser(self.core, self._llm, self.topic_search)
        self.titler.nudge()
        await self._start_wanted()

    async def stop_embedder(self) -> None:
        """Let it work off what there is, for a while, and stop it."""
        if self.embedder.status.state is EmbedderState.READY:
            self.embedder.nudge()
            with trio.move_on_after(self.core.config.shutdown.embed_drain_s):
                await self.embedder.wait_idle()
        await self.core.supervisor.stop(self._embedding.spec().name, "shutdown")

    async def recount(self) -> None:
        """Another database is in use: tell the embedder what it has, and look for what is missing there."""
        if self.embedder.status.state is EmbedderState.READY:
            await self.embedder.recount(self.core.readers, self.core.config.auto_rag.min_message_tokens)
            self.embedder.nudge()
        self.files.nudge()  # the new database has no pieces of files


def build(
    core: Core,
    llm: Llm,
    reindexer: Reindexer,
    *,
    stop_run: Callable[[UserId, str], Awaitable[None]],
    tasks_changed: Callable[[], None],
) -> MemoryParts:
    """Make the parts; nothing runs yet. ``stop_run`` ends a run whose messages are forgotten, and returns when its end
    is stored; ``tasks_changed`` is called when tasks were forgotten."""
    config, clock, readers, writer = core.config, core.clock, core.readers, core.writer
    live = core.live(lambda now: now)
    topics, auto_rag = (
        core.live(lambda now: attrs.evolve(now.topics, enabled=now.makes_topics)),
        core.live(lambda now: now.auto_rag),
    )
    embed = Embedder(clock, enabled=config.embedding.enabled)
    remote = remote_of(config, llm, core.paths.models_dir, clock, writer)
    if remote is not None:
        embed.remedy = "it is asked again every 30 s"
        core.health.add(remote.problems)
    metrics = TopicMetrics(core.metrics)
    memory_files = MemoryFiles(core.paths.workspace, writer, readers, embed.nudge)
    cover = Coverage(
        clock,
        readers,
        writer,
        embed.nudge,
        sliding_window=config.context.sliding_window,
        with_summaries=config.summarises,
    )
    topic_search = TopicSearch(readers, embed, clock, metrics)
    facts, people = Facts(writer, readers, embed, clock, core.new_id), People(writer, readers, clock, core.new_id)
    asker = Asker(llm=llm, clock=clock, writer=writer)
    maker = TopicMaker(readers, writer, embed, clock)
    archivist = Archivist(
        config=topics,
        maker=maker,
        asker=asker,
        metrics=metrics,
        on_topic=[FactExtractor(asker, facts, PeopleExtractor(people, readers), readers)],
    )
    summaries = SummaryMaker(
        config=live,
        writer=writer,
        readers=readers,
        asker=asker,
        correction=llm.correction,
        files=core.files,
        data_dir=core.paths.data_dir,
        clock=clock,
    )
    summarizer = Summarizer(summaries)
    core.health.add(embed.problems, cover.problems, summarizer.problems)

    def changed() -> None:
        embed.nudge()
        memory_files.nudge()
        tasks_changed()

    forgetter = Forgetter(
        writer=writer,
        readers=readers,
        data_dir=core.paths.data_dir,
        workspace=core.paths.workspace,
        clock=clock,
        files=Threads("forgetting", 1),
        reindexing=lambda: reindexer.status.state == "running",
        changed=changed,
        stop_run=stop_run,
        backups=core.paths.backups_dir,
    )
    titler = Titler(config=live, readers=readers, writer=writer, asker=asker, clock=clock, events=core.events)
    topic_control = TopicControl(config=topics, maker=maker, asker=asker, changed=archivist.nudge)
    made = MemoryParts(
        core=core,
        embedder=embed,
        recall=Recall(
            readers,
            embed,
            auto_rag,
            clock,
            reranker=_reranker(config, llm),
            expander=_expander(config, Asker(llm=llm, clock=clock)),
        ),
        search=MemorySearch(readers, embed, clock, topic_search),
        topic_search=topic_search,
        chooser=_chooser(core, llm, topic_search),
        topic_control=topic_control,
        facts=facts,
        people=people,
        files=memory_files,
        coverage=cover,
        summarizer=summarizer,
        archivist=archivist,
        forgetter=forgetter,
        titler=titler,
        metrics=metrics,
        llm=llm,
        embedding=Worker(
            embedder=embed,
            config=config.embedding,
            folder=config.embedding.path or core.paths.models_dir / config.embedding.model,
            min_tokens=config.auto_rag.min_message_tokens,
            writer=writer,
            readers=readers,
            remote=remote,
            tokens=config.auto_rag.tokens,
            gather_s=config.embedding.gather_s,
        ),
        background=(cover.spec(), memory_files.spec(), forgetter.spec(), titler.spec()),
    )
    core.changing.told.append(made.settings_changed)
    return made


def _reranker(config: EngineConfig, llm: Llm) -> CandidateReranker | None:
    if (named := config.endpoints.get("rerank")) is None:
        return None
    endpoint = llm.router.endpoint(*named, "rerank")
    return CandidateReranker(endpoint=endpoint, candidates=config.auto_rag.rerank.candidates, llm=llm)


def _expander(config: EngineConfig, asker: Asker) -> QuestionExpander | None:
    """None where nobody wants it, and where only the built-in model chats: it is too small for that."""
    named = config.routing.tasks.expansion or config.routing.default_provider != LOCAL_PROVIDER
    return QuestionExpander(asker) if config.auto_rag.expansion and named else None


def _chooser(core: Core, llm: Llm, search: TopicSearch) -> TopicChooser | None:
    config = core.config
    if config.topics.inject != "auto":
        return None
    names, budget_ms = config.routing.tasks.reranker, config.topics.time_budget_ms
    is_local = any(name.partition("/")[0] == LOCAL_PROVIDER for name in names)
    usual_s = LOCAL_S if is_local else REMOTE_S
    return TopicChooser(
        search=search,
        asker=Asker(llm=llm, clock=core.clock) if names else None,
        threshold=config.auto_rag.relevance_threshold,
        time_budget_s=budget_ms / 1000 if budget_ms is not None else usual_s,
    )
