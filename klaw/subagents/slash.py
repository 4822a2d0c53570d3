"""The slash commands about tasks and runs, in words for a chat. No actor: each asks ``Scheduling`` once or twice."""

from collections.abc import Awaitable, Sequence

from klaw.domain.names import ChatId, UserId, name_of, user_of
from klaw.domain.prompt_files import HEARTBEAT_FILE
from klaw.domain.task import HEARTBEAT, Run
from klaw.domain.zones import clock_text, local_time
from klaw.errors import ActorStopped, ActorTooSlow, KlawError
from klaw.subagents.describe import WAITING, TaskView
from klaw.subagents.service import Scheduling
from klaw.subagents.triggers import shown, span

SHOWN_TASKS = 50
SHOWN_RUNS = 10


class TaskAnswers:
    """Carries out slash commands about tasks and runs, and words the answers. Never raises a KlawError: what goes wrong
    is said in the answer."""

    def __init__(self, scheduling: Scheduling) -> None:
        self._scheduling = scheduling

    async def list_tasks(self, user: UserId) -> str:
        """The user's tasks: when they fire next, and how they ended last."""
        return await _told(self._list_tasks(user))

    async def list_runs(self, user: UserId, task: str) -> str:
        """The user's last runs. ``task``: only this one's; empty for all."""
        return await _told(self._list_runs(user, task))

    async def cancel(self, user: UserId, which: str) -> str:
        """End a run. ``which``: its id, or the name of its task; empty for the only one that goes on."""
        return await _told(self._cancel(user, which))

    async def heartbeat(self, chat: ChatId, rest: str) -> str:
        """Let the heartbeat speak in a chat; ``rest`` is what stood behind the command: ``off`` takes it back."""
        return await _told(self._heartbeat(chat, rest))

    # -- the commands ---------------------------------------------------------------------------------------------

    async def _list_tasks(self, user: UserId) -> str:
        views = await self._scheduling.tasks(user)
        if not views:
            return "There are no tasks; `klaw schedule add` makes one."
        lines = [self._task(view) for view in views[:SHOWN_TASKS]]
        if len(views) > SHOWN_TASKS:
            lines.append(f"  … and {len(views) - SHOWN_TASKS} more; `klaw schedule list` shows all.")
        return "\n".join(["Tasks:", *lines])

    async def _list_runs(self, user: UserId, task: str) -> str:
        runs = await self._scheduling.runs(user, task=task or None, limit=SHOWN_RUNS)
        if not runs:
            return f"There are no runs of {task}." if task else "There are no runs."
        return "\n".join(["Runs, the newest first:", *self._runs(runs)])

    async def _cancel(self, user: UserId, which: str) -> str:
        unfinished = self._scheduling.unfinished(user)
        if not unfinished:
            return "No run is in progress."
        meant = [run for run in unfinished if which in ("", run.id, run.task)]
        if not meant:
            return "\n".join(["No such run is in progress. These are:", *self._runs(unfinished)])
        if len(meant) > 1:
            return "\n".join(["Which one? Give its id:", *self._runs(meant)])
        if await self._scheduling.cancel(user, meant[0].id):
            return f"The run of {meant[0].task} is being ended."
        return f"The run of {meant[0].task} has just ended."

    async def _heartbeat(self, chat: ChatId, rest: str) -> str:
        user = user_of(chat)
        if rest.lower() == "off":
            await self._scheduling.pair_heartbeat(user, None)
            return "The heartbeat speaks in no chat from now on, and is not looked after."
        if rest:
            return "Say /heartbeat to let the heartbeat speak in this chat, or /heartbeat off."
        if not self._scheduling.heartbeat_s:
            return (
                "Heartbeats are off, so nothing was changed: set heartbeat.intervalSeconds in the configuration, start "
                "the server again, and then say /heartbeat here."
            )
        await self._scheduling.pair_heartbeat(user, name_of(chat))
        return (
            f"The heartbeat speaks in this chat from now on. Every {span(self._scheduling.heartbeat_s)} I go through "
            f"{HEARTBEAT_FILE} in your workspace; while it is missing or empty, nothing happens."
        )

    # -- words -----------------------------------------------------------------------------------------------------

    def _task(self, view: TaskView) -> str:
        task = view.task
        parts = [f"every {span(self._scheduling.heartbeat_s)}" if task.name == HEARTBEAT else shown(task.trigger)]
        if task.name == HEARTBEAT and not self._scheduling.heartbeat_s:
            parts = ["heartbeats are off in the configuration"]
        elif not task.enabled:
            parts.append("disabled")
        elif view.running:
            parts.append("runs now")
        elif view.next_fires:
            parts.append(f"next {clock_text(local_time(view.next_fires[0], view.zone))}")
        else:
            parts.append("will not fire again")
        if view.last is not None and view.last.status.over:
            parts.append(f"last run {_status(view.last)}")
        if view.warning is not None:
            parts.append(view.warning)
        return f"  {task.name}: {'; '.join(parts)}"

    def _runs(self, runs: Sequence[Run]) -> list[str]:
        lines = []
        for run in runs:
            status = WAITING if self._scheduling.waits(run.id) else _status(run)
            note = f"  {run.note}" if run.note else f"  {run.error}" if run.error else ""
            lines.append(f"  {run.id}  {run.task}  {status}  {run.started_at[:10]} {run.started_at[11:16]}Z{note}")
        return lines


async def _told(answer: Awaitable[str]) -> str:
    """The answer, or what went wrong."""
    try:
        return await answer
    except (ActorStopped, ActorTooSlow):
        return "The scheduler does not answer now: try again a little later."
    except KlawError as error:
        return f"That did not work: {error}."


def _status(run: Run) -> str:
    return run.status.value.replace("_", " ")
