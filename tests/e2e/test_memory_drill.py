"""Memory is whole after kills in the middle of its changes: tools/memory_drill.py, as by hand but shorter."""

from tests.support.programs.drill import drill

OPERATIONS = ("undo", "draw-topic", "merge-people", "supersede", "forget-message", "forget-derived", "forget-person")


async def test_memory_drill_of_seven_kills() -> None:
    report = await drill("memory_drill.py", "--kills", "1", "--seed", "5", "--only", *OPERATIONS)
    assert report["by"] == dict.fromkeys(OPERATIONS, 1)
