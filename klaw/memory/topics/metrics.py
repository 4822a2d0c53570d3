"""The metrics of topics."""

from klaw.actor.metrics import CHARS, COUNTS, SECONDS, Metrics


class TopicMetrics:
    """Declares them in a registry; one for each process."""

    def __init__(self, metrics: Metrics) -> None:
        counter, histogram = metrics.counter, metrics.histogram
        self.extracted = counter("klaw_topics_extracted_total", "topics that were stored")
        self.splitter_s = histogram("klaw_splitter_duration_seconds", "one chunk's division into topics", SECONDS)
        self.splitter_fallbacks = counter("klaw_splitter_fallbacks_total", "chunks that no answer could be had for")
        self.size_chars = histogram("klaw_topics_size_chars", "size of a new topic's messages", CHARS)
        self.gaps = counter("klaw_topics_coverage_gaps_total", "messages that no topic of their chunk claimed")
        self.failed = counter("klaw_topics_failed_chunks_total", "chunks that failed and are tried again later")
        self.merged = counter("klaw_topics_merged_total", "topics that another one took in")
        self.merger_s = histogram("klaw_merger_duration_seconds", "one decision on a merge", SECONDS)
        self.candidates = histogram("klaw_topics_consolidation_candidates", "similar topics of a new one", COUNTS)
        self.search_s = histogram("klaw_topics_search_duration_seconds", "one search, without the reranker", SECONDS)
        self.results = histogram("klaw_topics_search_results", "topics that a search found", COUNTS)
        self.selected = histogram("klaw_topics_reranker_selected", "topics that the reranker chose", COUNTS)
        self.reranker_s = histogram("klaw_reranker_duration_seconds", "one choice of the reranker", SECONDS)
        self.reranker_loads = histogram("klaw_reranker_loads", "calls of get_topics_content in one choice", COUNTS)
        self.reranker_fallbacks = counter("klaw_reranker_fallbacks_total", "choices that were made without an answer")
