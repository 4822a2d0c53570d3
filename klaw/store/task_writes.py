"""The part of the writer's handle that the scheduler uses: tasks, runs, transcripts and what runs say in chats."""

from collections.abc import Sequence
from typing import Literal

from klaw.actor.mailbox import Mailbox
from klaw.actor.reply import Reply
from klaw.domain.message import NewMessage
from klaw.domain.names import UserId
from klaw.domain.task import Run, Task, TaskName
from klaw.store.requests import (
    AppendTranscript,
    BeginRun,
    Begun,
    PutTask,
    RemoveTask,
    Request,
    RunSaved,
    SaveRun,
    Transcript,
)


class TaskWrites:
    """Each is durable when it returns, and all or nothing. Each may raise StorageFull and ActorStopped.

    Cancellation: what was asked for may be stored or not. To begin or save the same run again is safe.
    """

    mailbox: Mailbox[Request]

    async def put_task(self, task: Task, expected: Literal["new", "existing"]) -> Task:
        """Store a task.

        Raises:
            TaskExists: a new one was expected, and the user has one of its name.
            NoSuchTask: one was to be changed, and the user has none of its name.
        """

        def request(reply: Reply[Task]) -> PutTask:
            return PutTask(task=task, expected=expected, reply=reply)

        return await self.mailbox.ask(request)

    async def remove_task(self, user: UserId, name: TaskName, at: str) -> Task:
        """Remove a task and return what it was; its runs and transcripts stay.

        Args:
            user: its owner.
            name: its name.
            at: the time now, ISO-8601 UTC with milliseconds.

        Raises:
            NoSuchTask: the user has none of this name.
        """

        def request(reply: Reply[Task]) -> RemoveTask:
            return RemoveTask(user=user, name=name, at=at, reply=reply)

        return await self.mailbox.ask(request)

    async def begin_run(self, run: Run, notice: NewMessage | None = None) -> Begun:
        """Store a run that begins, or one that is refused and so over already.

        A second run of the same user, task, kind, due and attempt is not stored: the answer has ``repeated`` and the
        first one. So no fire time runs twice.

        Args:
            run: the run.
            notice: what a chat is told of it (``domain.delivery.notice_message``).

        Raises:
            NoSuchChat: that of the notice; nothing was stored.
            IdConflict: the id is another run's.
        """

        def request(reply: Reply[Begun]) -> BeginRun:
            return BeginRun(run=run, notice=notice, reply=reply)

        return await self.mailbox.ask(request)

    async def append_transcript(self, run: Run, first_seq: int, messages: Sequence[NewMessage]) -> None:
        """Add messages to the JSONL of a run, in ``domain.task.run_folder``; all of a run are in one file, the one of
        the UTC day on which it began. Their chat is replaced by the folder's name; their metadata gets the run's id
        and, unless they name one, its model.

        Args:
            run: the run.
            first_seq: place of the first message within the run, from 1.
            messages: in order.

        Raises:
            NoSuchRun: it was not begun.
            RunOver: it has ended.

        Cancellation: they may be there or not, and a repetition would double them; readers know them by their ids.
        """

        def request(reply: Reply[None]) -> AppendTranscript:
            transcript = Transcript(first_seq=first_seq, messages=tuple(messages))
            return AppendTranscript(run=run, transcript=transcript, reply=reply)

        await self.mailbox.ask(request)

    async def save_run(
        self,
        run: Run,
        *,
        transcript: Transcript | None = None,
        delivery: NewMessage | None = None,
        notice: NewMessage | None = None,
    ) -> RunSaved:
        """Store the next state of a run that has not ended: how far it is, a delivery in its middle, or its end.

        Args:
            run: the new state. With a delivery its ``delivered`` counts that already.
            transcript: last lines of its transcript.
            delivery: a result for the run's chat, ``domain.delivery.delivery_message`` with the number
                ``run.delivered``. It gets its place in the chat like any message and is published like any.
            notice: what another chat is told (``domain.delivery.notice_message``).

        Raises:
            NoSuchChat: that of the delivery or of the notice is unknown or another user's; nothing was stored.
            NoSuchRun: it was not begun.
            RunOver: it has ended, in another way.
            StorageError: the state does not fit the stored one, or the delivery does not fit the state.

        Cancellation: the same again is answered with ``repeated``, and nothing is written twice.
        """

        def request(reply: Reply[RunSaved]) -> SaveRun:
            return SaveRun(run=run, transcript=transcript, delivery=delivery, notice=notice, reply=reply)

        return await self.mailbox.ask(request)
