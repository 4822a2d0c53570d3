"""What is kept on purpose: requests about facts and people go to their own modules."""

from typing import Any, TypeAlias

from klaw.admin.fact_requests import OfFacts
from klaw.admin.facts import run_on_facts
from klaw.admin.people import run_on_people
from klaw.admin.people_requests import OfPeople
from klaw.memory.facts import Facts
from klaw.memory.people import People
from klaw.store.readers import Readers

OfKept: TypeAlias = OfFacts | OfPeople


async def run_on_kept(facts: Facts, people: People, readers: Readers, request: OfKept) -> dict[str, Any]:
    """Carry out a request. Raises what ``run_on_facts`` and ``run_on_people`` raise.

    Cancellation: a change may or may not be made.
    """
    if isinstance(request, OfFacts):
        return await run_on_facts(facts, readers, request)
    return await run_on_people(people, readers, request)
