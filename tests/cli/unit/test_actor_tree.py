"""The tree of actors."""

from typing import Any

from klaw.actor.mailbox import MailboxReport
from klaw.actor.supervisor import ActorReport, ActorState
from klaw.llm.slots import SlotsReport
from klaw.operations.actors import actor_tree

SLOTS = SlotsReport(total=2, busy=1, waiting=3, waiting_background=1, high_water=4, granted=9)


def report(name: str, parent: str | None = None, *, box: bool = True) -> ActorReport:
    mailbox = MailboxReport(capacity=8, depth=1, high_water=2, handled=3, failed=4, dropped=5) if box else None
    return ActorReport(
        name=name,
        parent=parent,
        state=ActorState.RUNNING,
        since=1.0,
        activity="idle",
        activity_since=2.0,
        restarts=6,
        last_error="ModelError",
        mailbox=mailbox,
    )


def names(node: dict[str, Any]) -> dict[str, Any]:
    return {child["name"]: names(child) for child in node["children"]}


def test_groups_appear_where_a_parent_is_no_actor() -> None:
    """Dotted prefixes and parents make groups; a chat's name with a dot does not."""
    tree = actor_tree(
        [
            report("store.writer"),
            report("memory.embedder"),
            report("llm.local", "llm"),
            report("gateway"),
            report("chat anna:v1.5 заметки", "chats"),
            report("chat local:main", "chats"),
            report("admin.socket"),
        ],
        SLOTS,
        [{"id": "c1", "user": "anna"}, {"id": "c2", "user": None}],
    )
    assert tree["name"] == "supervisor"
    assert names(tree) == {
        "gateway": {"connection c1": {}, "connection c2": {}},
        "store": {"store.writer": {}},
        "memory": {"memory.embedder": {}},
        "llm": {"llm.local": {}, "llm.slots": {}},
        "chats": {"chat anna:v1.5 заметки": {}, "chat local:main": {}},
        "admin": {"admin.socket": {}},
    }


def test_a_node_has_every_counter() -> None:
    (group,) = actor_tree([report("store.writer")], None, [])["children"]
    (writer,) = group["children"]
    assert group["kind"] == "group"
    assert writer == {
        "name": "store.writer",
        "kind": "actor",
        "parent": None,
        "state": "running",
        "since": 1.0,
        "activity": "idle",
        "activity_since": 2.0,
        "restarts": 6,
        "last_error": "ModelError",
        "mailbox": {"capacity": 8, "depth": 1, "high_water": 2, "handled": 3, "failed": 4, "dropped": 5},
        "children": [],
    }


def test_connections_without_a_gateway_still_show() -> None:
    """While the gateway starts or stops, nothing is lost from view."""
    assert names(actor_tree([], None, [{"id": "c1"}])) == {"gateway": {"connection c1": {}}}
