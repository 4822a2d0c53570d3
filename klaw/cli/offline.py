"""Lists of what is kept, read from the database of a server that does not run."""

from typing import Any

from klaw.config.paths import Paths

LISTS = frozenset({"person_list", "topics_list", "topics_show"})
"""The server's commands that can be answered so."""


def read_list(paths: Paths, command: str, wanted: dict[str, Any]) -> dict[str, Any]:
    """What the server would answer.

    Raises:
        Refused: an argument is wrong, or there is no such topic.
        StorageError: the database cannot be read.
    """
    import json

    import trio

    from klaw.actor import log
    from klaw.admin.requests import BadRequest, parse
    from klaw.cli.admin_call import Refused

    log.configure("error", "auto")
    given = {name: value for name, value in wanted.items() if value is not None}
    try:
        request = parse(json.dumps({"command": command, "args": given}).encode())
        return trio.run(_answer, paths, request)
    except BadRequest as error:
        raise Refused(error.code, str(error), error.problems) from None


async def _answer(paths: Paths, request: Any) -> dict[str, Any]:
    from klaw.admin.answers import check_user
    from klaw.admin.forgetting import run_topics
    from klaw.admin.people import list_people
    from klaw.admin.people_requests import PersonList
    from klaw.domain.names import LOCAL_USER
    from klaw.store.offline import offline_readers

    user = check_user(request.user or LOCAL_USER)
    async with offline_readers(paths.database) as readers:
        if isinstance(request, PersonList):
            return await list_people(readers, user, request)
        return await run_topics(readers, request)
