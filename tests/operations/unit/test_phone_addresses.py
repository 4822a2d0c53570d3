"""Where a phone reaches a server, and the code that a terminal shows."""

import pytest
import segno

from klaw.operations.host.token import in_blocks, own_addresses


@pytest.mark.parametrize("listening", ["ws://127.0.0.1:8181/ws", "ws://[::1]:8181/ws", "ws://:0/ws", ""])
def test_a_server_of_this_machine_only_has_no_address_for_others(listening):
    assert own_addresses(listening) == []


def test_the_address_that_it_listens_at():
    assert own_addresses("ws://192.168.7.20:8181/ws") == ["http://192.168.7.20:8181"]
    assert own_addresses("ws://[fd00::7]:8181/ws") == ["http://[fd00::7]:8181"]


@pytest.mark.parametrize("listening", ["ws://0.0.0.0:8181/ws", "ws://[::]:8181/ws"])
def test_all_addresses_of_the_machine_without_its_own(listening):
    found = own_addresses(listening)
    assert all(each.startswith("http://") and each.endswith(":8181") for each in found)
    assert not any("127.0.0." in each or "::1]" in each or "0.0.0.0" in each for each in found)


def test_a_terminal_shows_the_code_of_the_address():
    url = "http://192.168.7.20:8181/#/code/abcdefghijklmnopqrstuv"
    lines = in_blocks(url)
    light = {" ": (0, 0), "▄": (0, 1), "▀": (1, 0), "█": (1, 1)}
    rows = [[light[each][half] for each in line] for line in lines for half in (0, 1)]
    dark = [[1 - bool(each) for each in row] for row in segno.make(url, micro=False).matrix_iter(border=2)]
    assert rows[: len(dark)] == dark
    assert all(all(row) for row in rows[len(dark) :])
