"""Codes: how long they hold, how often, and for whom."""

from klaw.channels.messenger import ChannelConversation, Sender
from klaw.channels.pairing import LASTS_S, LENGTH, MOST_OPEN, PairingCodes, Stranger
from klaw.domain.names import UserId

ANNA = UserId("anna")


def stranger(number: int = 1, account: str = "telegram", *, group: bool = False) -> Stranger:
    conversation = ChannelConversation(id=str(number), title="Somebody", group=group)
    return Stranger(account=account, conversation=conversation, sender=Sender(id=str(number), name="Somebody"))


class Clock:
    now = 1000.0


def test_a_code_is_told_once_and_used_once() -> None:
    codes = PairingCodes(lambda: 0.0)
    code = codes.ask(stranger())
    assert code is not None
    assert len(code) == LENGTH
    assert codes.ask(stranger()) is None
    assert codes.waiting() == [(code, stranger())]
    assert codes.stranger(f" {code.lower()} ", groups=False) == stranger()
    assert codes.ask(stranger()) is None  # while they are being let in
    codes.close(stranger())
    assert codes.stranger(code, groups=True) is None


def test_strangers_have_a_few_codes_at_most_and_other_accounts_their_own() -> None:
    codes = PairingCodes(lambda: 0.0)
    assert all(codes.ask(stranger(number)) for number in range(MOST_OPEN))
    assert codes.ask(stranger(99)) is None
    assert codes.ask(stranger(99, "matrix")) is not None


def test_a_code_ends_after_an_hour() -> None:
    clock = Clock()
    codes = PairingCodes(lambda: clock.now)
    code, until = codes.invite("telegram", ANNA)
    asked = codes.ask(stranger())
    assert until == clock.now + LASTS_S
    clock.now += LASTS_S
    assert codes.invited(code, "telegram") is None
    assert asked is not None
    assert codes.stranger(asked, groups=True) is None
    assert codes.ask(stranger()) is not None


def test_an_invitation_holds_in_its_own_account_and_is_no_code_of_a_stranger() -> None:
    codes = PairingCodes(lambda: 0.0)
    code, _ = codes.invite("telegram", ANNA)
    assert codes.invited(code, "matrix") is None
    assert codes.stranger(code, groups=True) is None
    assert codes.waiting() == []
    assert codes.invited(code, "telegram") == ANNA
    assert codes.invited(code, "telegram") is None


def test_only_an_operator_lets_a_group_in() -> None:
    codes = PairingCodes(lambda: 0.0)
    code = codes.ask(stranger(group=True))
    assert code is not None
    assert codes.stranger(code, groups=False) is None
    assert codes.stranger(code, groups=True) is not None
