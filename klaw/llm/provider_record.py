"""What was learned of a provider, as the database keeps it, and the secrets that it is asked with."""

import json
from collections.abc import Mapping
from contextlib import suppress

import attrs

from klaw.config.document import join_path
from klaw.config.llm import ProviderConfig
from klaw.convert import JOURNAL
from klaw.llm.discovery import DiscoveredService
from klaw.llm.facts import ModelFacts
from klaw.llm.providers.adapt import Habits


@attrs.define(kw_only=True)
class ProviderRecord:
    """``tried`` and ``habits`` are by the provider's own name of a model."""

    base_url: str
    service: DiscoveredService | None = None
    tried: dict[str, ModelFacts] = attrs.Factory(dict)
    habits: dict[str, Habits] = attrs.Factory(dict)


def read_records(kept: Mapping[str, str], oldest: str) -> dict[str, ProviderRecord]:
    """The records by provider, without what was tried or refused before ``oldest``. Slow for thousands of models."""
    records = {}
    for provider, text in kept.items():
        with suppress(ValueError, TypeError):  # of another version: it is asked again
            record = JOURNAL.read(json.loads(text), ProviderRecord)
            record.habits = {model: each for model, each in record.habits.items() if each.at >= oldest}
            record.tried = {model: each for model, each in record.tried.items() if each.is_since(oldest)}
            record.service = record.service and record.service.dated()
            records[provider] = record
    return records


def record_text(record: ProviderRecord) -> str:
    short = attrs.evolve(record, service=record.service and record.service.undated())
    return json.dumps(JOURNAL.write(short), ensure_ascii=False, separators=(",", ":"))


def secrets_of(provider: str, settings: ProviderConfig) -> tuple[str | None, dict[str, str]]:
    """Key and headers. Raises ConfigError. Reads files, so it is for a thread."""
    key = join_path("providers", provider)
    headers = f"{key}.headers"
    api_key = settings.api_key.reveal(join_path(key, "apiKey")) if settings.api_key is not None else None
    return api_key, {name: value.reveal(join_path(headers, name)) for name, value in settings.headers.items()}
