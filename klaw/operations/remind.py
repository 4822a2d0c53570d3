"""Reminders, which are tasks that ask no model, and the time zone of a user's times."""

from typing import Annotated, Any, TypedDict

import attrs

from klaw.convert import Bounds, Check
from klaw.domain.names import zone as known_zone
from klaw.domain.task import MAX_TASK_MESSAGE_BYTES
from klaw.operations import operation as op
from klaw.operations import stored
from klaw.operations.handler import Caller, Parts
from klaw.operations.lines import Lines
from klaw.operations.schedule import TaskAnswer

REMIND = op.Noun("remind", "set a reminder: klaw remind tomorrow 9:00 water the roses", invalid="bad_task")
SNOOZE = op.Noun("snooze", "get a delivered reminder again, later: klaw snooze 20 minutes", invalid="bad_task")
ZONE = op.Noun("zone", "show or set your time zone, for reminders and tasks")


@attrs.frozen(kw_only=True)
class Reminder(op.OfUser):
    text: Annotated[str, Bounds(1, MAX_TASK_MESSAGE_BYTES)] = op.required(
        "when, and of what: in 20 minutes turn off the oven", words=True, metavar="WHEN WHAT"
    )
    when: str | None = op.argument("the time, if the text does not have it: tomorrow at 9", title="When")
    chat: op.ChatName | None = op.argument("the chat (default: the one you used last)", metavar="NAME")


@attrs.frozen(kw_only=True)
class Snooze(op.OfUser):
    when: str = op.required("until when: 20 minutes, tomorrow at 9", words=True)
    name: op.Name | None = op.argument("which reminder (default: the one that was delivered last)")


@attrs.frozen(kw_only=True)
class NewZone(op.OfUser):
    zone: Annotated[str, Check(lambda name: known_zone(name).key)] = op.required(
        "its name, such as Europe/Berlin", title="Time zone"
    )


class ReminderAnswer(TypedDict):
    task: TaskAnswer
    told: str


class ZoneAnswer(TypedDict):
    zone: str


def _told(answer: dict[str, Any]) -> Lines:
    return [answer["told"], f"to change it: klaw schedule edit {answer['task']['name']} --when …"]


def _in_chat(answer: dict[str, Any]) -> Lines:
    return [answer["told"]]


def _zone(answer: dict[str, Any]) -> Lines:
    return [f"Your time zone is {answer['zone']}."]


_REMIND = op.Slash(
    word="/remind",
    help="set a reminder: /remind tomorrow 9:00 water the roses",
    rest="text",
    of_chat="chat",
    show=_in_chat,
)
_SNOOZE = op.Slash(word="/snooze", help="get the last reminder again: /snooze 20 minutes", rest="when", show=_in_chat)


@REMIND.operation("remind", Reminder, cli="", show=_told, changes=True, slash=_REMIND)
async def remind(asked: Reminder, caller: Caller, parts: Parts) -> ReminderAnswer:
    """Set a reminder: its text comes into the chat at that time, and no model is asked."""
    made: ReminderAnswer = await parts.tasks.scheduling.remind(caller.user, asked.text, asked.when, asked.chat)
    return made


@SNOOZE.operation("snooze", Snooze, cli="", show=_told, changes=True, slash=_SNOOZE)
async def snooze(asked: Snooze, caller: Caller, parts: Parts) -> ReminderAnswer:
    """Get a reminder again at another time, once."""
    made: ReminderAnswer = await parts.tasks.scheduling.snooze(caller.user, asked.when, asked.name)
    return made


@ZONE.operation("zone", op.OfUser, cli="", show=_zone, slash=op.Slash(word="/zone", help="show or set your time zone"))
async def zone(_asked: op.OfUser, caller: Caller, parts: Parts) -> ZoneAnswer:
    """Show the time zone of your reminders and tasks."""
    return {"zone": await parts.tasks.scheduling.zone_of(caller.user)}


@ZONE.operation("zone_set", NewZone, cli="set", show=_zone, changes=True, slash=op.Slash(word="/zone", rest="zone"))
async def set_zone(asked: NewZone, caller: Caller, parts: Parts) -> ZoneAnswer:
    """Set your time zone. Reminders and tasks that there are keep theirs."""
    await parts.writer.run(stored.user_settings.set_zone, caller.user, asked.zone, parts.now())
    return {"zone": asked.zone}
