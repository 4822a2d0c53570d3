"""The slash command ``/people``, in words for a chat. Only reads, and only the user's own."""

from klaw.domain.names import UserId
from klaw.domain.search import PersonResult
from klaw.memory.people.people_search import PeopleSearch
from klaw.store.readers import Readers
from klaw.store.sql import people
from klaw.store.sql.people import Known

SHOWN = 20
FOUND = 5


class PeopleAnswers:
    """Lists the people a user speaks of, or tells who one is.

    Args:
        readers: of the store.
    """

    def __init__(self, readers: Readers) -> None:
        self._readers = readers
        self._search = PeopleSearch(readers)

    async def tell(self, user: UserId, name: str) -> str:
        """Those named most often, or those whom ``name`` means. Raises StorageError."""
        if name:
            found = await self._search.find(name, user, limit=FOUND)
            return "\n".join(line for each in found for line in _who(each)) or "Nobody of that name is known."
        known = await self._readers.run(people.of_user, user, limit=SHOWN)
        if not known:
            return "No people are known yet. `klaw people add NAME` adds one; topics.enabled finds them in your talk."
        total = await self._readers.run(people.count, user)
        more = [f"  … and {total - len(known)} more; `klaw people list` shows all."] if total > len(known) else []
        return "\n".join(["People you speak of, those named most often first:", *map(_line, known), *more])


def _line(known: Known) -> str:
    person = known.person
    named = f"named in {known.topics}" if known.topics else ""
    told = [person.relation, *_also(person.aliases), named]
    return "  ".join([f"  {person.name}", *(each for each in told if each)])


def _who(person: PersonResult) -> list[str]:
    """Facts are shown whole: of a part, forgetting would not know what it is."""
    named = f"last named {person.last_at[:10]}" if person.last_at else ""
    told = [person.relation, *_also(person.aliases), named, f"person:{person.id}"]
    head = "  ".join([person.name, *(each for each in told if each)])
    return [head, *(f"  {fact.text}" for fact in person.facts)]


def _also(aliases: tuple[str, ...]) -> list[str]:
    return [f"also {', '.join(aliases)}"] if aliases else []
