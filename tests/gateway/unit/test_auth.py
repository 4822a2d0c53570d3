"""Tokens: the file, the checks, the command."""

import json
import stat

import pytest

from klaw.actor.clock import iso
from klaw.cli.main import main
from klaw.domain.names import UserId
from klaw.errors import ConfigError, InvalidName
from klaw.gateway.tokens import (
    ACCESS_S,
    CODE_S,
    MAX_CODES,
    MAX_LOGINS,
    Authenticator,
    Grant,
    McpClient,
    add_client,
    add_login,
    add_token,
    allow_local,
    end_client,
    load_access,
    renew_client,
    revoke_tokens,
)

NOW = "2026-11-21T12:00:00.000Z"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "config" / "tokens.json"


def test_a_token_is_stored_hashed_in_a_private_file(path):
    entry, secret = add_token(path, "anna", NOW)
    assert len(secret) > 43
    assert secret not in path.read_text()
    assert secret not in repr(entry)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [token.user for token in load_access(path).tokens] == ["anna"]


def test_a_token_grants_its_user_and_only_that(path):
    _, anna = add_token(path, "anna", NOW)
    _, boris = add_token(path, "boris", NOW)
    auth = Authenticator(path)
    assert auth.grant(anna, loopback=False).user == "anna"
    assert auth.grant(boris, loopback=True).user == "boris"
    for wrong in ("", "wrong", anna + "x", anna[:-1], "\ud800", load_access(path).tokens[0].sha256):
        assert auth.grant(wrong, loopback=True) is None
    assert auth.grant(None, loopback=True) is None


def test_without_tokens_loopback_is_the_local_user_and_nobody_else_comes_in(path):
    auth = Authenticator(path)
    assert auth.grant(None, loopback=True).user == "local"
    assert auth.grant(None, loopback=False) is None
    assert auth.grant("revoked", loopback=True) is None


def test_from_the_first_token_on_this_machine_stays_out_until_the_owner_says_otherwise(path):
    auth = Authenticator(path)

    def let_in():
        return auth.grant(None, loopback=True) is not None

    assert let_in()
    assert auth.grant(None, loopback=True).operator, "whoever is at the machine runs the server"
    assert revoke_tokens(path, "nobody") == ()
    assert let_in(), "nothing was revoked"
    entry, _ = add_token(path, "anna", NOW)
    assert not let_in()
    revoke_tokens(path, entry.id)
    assert not let_in(), "the last token was revoked"
    assert auth.has_tokens is False
    assert allow_local(path, allowed=True).local
    assert let_in()
    add_token(path, "anna", NOW)
    assert let_in(), "beside the token"
    assert auth.grant(None, loopback=False) is None
    grant = auth.grant(None, loopback=True)
    assert not grant.operator, "others have tokens"
    allow_local(path, allowed=False)
    assert not let_in()
    assert not auth.holds(grant)


@pytest.mark.parametrize("content", ['{"tokens": []}', '{"tokens": [], "allow_local": "true"}'])
def test_a_file_without_the_owners_word_is_closed(path, content):
    path.parent.mkdir()
    path.write_text(content)
    assert Authenticator(path).grant(None, loopback=True) is None


def test_a_file_that_is_gone_opens_no_running_server(path, log_events):
    _, anna = add_token(path, "anna", NOW)
    auth = Authenticator(path)
    path.unlink()
    assert auth.grant(None, loopback=True) is None
    assert auth.grant(anna, loopback=False).user == "anna"
    assert "tokens_gone" in [entry["event"] for entry in log_events]


def test_this_machine_can_be_kept_out_before_there_is_a_token(path):
    assert not allow_local(path, allowed=False).local
    assert Authenticator(path).grant(None, loopback=True) is None


def test_a_connection_hears_of_a_revocation_with_the_next_look_and_a_newcomer_at_once(path):
    _, anna = add_token(path, "anna", NOW)
    auth = Authenticator(path, recheck_s=1000.0)
    grant = auth.grant(anna, loopback=False)
    revoke_tokens(path, "anna")
    assert auth.holds(grant)
    assert auth.grant(anna, loopback=False) is None
    assert not auth.holds(grant)


def test_changes_of_the_file_are_seen_at_once(path):
    auth = Authenticator(path, recheck_s=0.0)
    local = auth.grant(None, loopback=True)
    entry, anna = add_token(path, "anna", NOW)
    assert not auth.holds(local)
    grant = auth.grant(anna, loopback=False)
    assert auth.holds(grant)
    revoke_tokens(path, entry.id)
    assert not auth.holds(grant)
    assert auth.grant(anna, loopback=False) is None


@pytest.mark.parametrize("content", ["", "nonsense", "[]", '{"tokens": [{"id": "x"}]}', '{"tokens": 5}', "\ufeff{}"])
def test_a_broken_file_stops_the_start_but_not_a_running_server(path, content, log_events):
    _, anna = add_token(path, "anna", NOW)
    auth = Authenticator(path)
    path.write_text(content)
    with pytest.raises(ConfigError, match=r"tokens\.json"):
        Authenticator(path)
    assert auth.grant(anna, loopback=False).user == "anna"
    assert "tokens_unreadable" in [entry["event"] for entry in log_events]


def test_a_token_with_a_short_hash_or_a_bad_user_is_refused(path):
    add_token(path, "anna", NOW)
    for change in ({"sha256": "ab"}, {"user": "../x"}, {"sha256": "zz" * 32}):
        tree = json.loads(path.read_text())
        tree["tokens"][0].update(change)
        broken = path.with_name("broken.json")
        broken.write_text(json.dumps(tree))
        with pytest.raises(ConfigError):
            load_access(broken)


def test_revoking_a_user_removes_all_of_their_tokens_only(path):
    for user in ("anna", "boris", "anna"):
        add_token(path, user, NOW)
    assert len(revoke_tokens(path, "anna")) == 2
    assert [token.user for token in load_access(path).tokens] == ["boris"]
    assert revoke_tokens(path, "anna") == ()


def test_a_bad_user_name_makes_nothing(path):
    with pytest.raises(InvalidName):
        add_token(path, "../x", NOW)
    assert not path.exists()


def test_a_folder_that_cannot_be_written_is_a_config_error(path):
    path.parent.mkdir()
    (path.parent / "tokens.lock").mkdir()
    with pytest.raises(ConfigError):
        add_token(path, "anna", NOW)
    assert [each.name for each in path.parent.iterdir()] == ["tokens.lock"]


def test_the_lock_is_private_also_when_an_earlier_klaw_made_it(path):
    path.parent.mkdir()
    lock = path.parent / "tokens.lock"
    lock.touch(mode=0o644)
    add_token(path, "anna", NOW)
    assert {each.name: each.stat().st_mode & 0o777 for each in path.parent.iterdir()} == {
        "tokens.json": 0o600,
        "tokens.lock": 0o600,
    }


def test_the_commands(tmp_path, capsys):
    def run(*words):
        return main(["token", *words, "--home", str(tmp_path)]), capsys.readouterr()

    code, printed = run("add", "anna", "--json")
    added = json.loads(printed.out)
    assert (code, added["user"]) == (0, "anna")
    assert Authenticator(tmp_path / "config" / "tokens.json").grant(added["token"], loopback=False).user == "anna"
    code, printed = run("list", "--json")
    assert [each["id"] for each in json.loads(printed.out)["tokens"]] == [added["id"]]
    assert added["token"] not in printed.out
    code, printed = run("list")
    assert "anna" in printed.out
    code, printed = run("add", "Not A Name")
    assert code == 2
    assert "NAME: " in printed.err
    assert run("revoke", "anna")[0] == 0
    assert run("revoke", "anna")[0] == 1
    code, printed = run("list")
    assert "no tokens: nobody can connect" in printed.out


def test_the_first_token_says_what_it_means_for_this_machine_and_the_last_one_too(tmp_path, capsys):
    def run(*words):
        assert main(["token", *words, "--home", str(tmp_path)]) == 0
        return capsys.readouterr().out

    assert "only this machine can connect" in run("list")
    first = run("add", "anna")
    assert "Every connection needs a token from now on" in first
    assert "klaw token add local" in first
    assert "klaw token allow-local" in first
    assert "Every connection" not in run("add", "local"), "the owner can come in"
    assert "nobody" not in run("revoke", "local")
    assert "nobody can connect before" in run("revoke", "anna")
    assert "needs no token" in run("allow-local")
    assert "only this machine can connect" in run("list")
    assert "Every connection" not in run("add", "anna"), "the owner said that it stays open"
    assert "klaw token deny-local ends that" in run("list")
    assert json.loads(run("deny-local", "--json")) == {"allow_local": False}
    assert "nobody can connect before" in run("revoke", "anna")


class _Now:
    def __init__(self) -> None:
        self.s = 1_800_000_000.0

    def __call__(self) -> float:
        return self.s


def test_a_code_logs_in_once_and_for_ten_minutes_only(path):
    now = _Now()
    add_token(path, "anna", NOW)
    auth = Authenticator(path, now)
    code, until = auth.make_code("anna", operator=False, asked_with=None)
    assert until == iso(now.s + CODE_S)
    assert code not in path.read_text()
    assert auth.grant(code, loopback=True) is None, "it is no token"
    assert auth.redeem(code) == Grant(user="anna", token=None)
    assert auth.redeem(code) is None, "it is used up"
    code, _ = auth.make_code("anna", operator=False, asked_with=None)
    now.s += CODE_S
    assert auth.redeem(code) is None
    assert auth.redeem("") is None


def test_a_code_ends_with_the_key_of_its_user_and_not_with_that_of_another_one(path):
    anna, _ = add_token(path, "anna", NOW)
    root, _ = add_token(path, "root", NOW, operator=True)
    auth = Authenticator(path)
    own, _ = auth.make_code("anna", operator=False, asked_with=anna.id)
    given, _ = auth.make_code("anna", operator=False, asked_with=root.id)
    first, second = (add_login(path, auth.redeem(code), NOW, "2100-01-01T00:00:00Z") for code in (own, given))
    login = auth.grant(first, loopback=False, login=True)
    again, _ = auth.make_code("anna", operator=False, asked_with=login.token)
    auth.revoke(anna.id)
    auth.revoke(root.id)
    assert auth.grant(first, loopback=False, login=True) is None
    assert auth.redeem(again) is None
    assert auth.grant(second, loopback=False, login=True).user == "anna"
    (left,) = auth.listed().tokens
    assert (left.user, left.login_of) == ("anna", left.id)


def test_there_is_a_bound_for_codes_and_the_oldest_goes(path):
    add_token(path, "anna", NOW)
    auth = Authenticator(path)
    codes = [auth.make_code("anna", operator=False, asked_with=None)[0] for _ in range(MAX_CODES + 1)]
    assert auth.redeem(codes[0]) is None
    assert all(auth.redeem(each) for each in codes[1:])


def test_a_user_revokes_own_tokens_only(path):
    anna, _ = add_token(path, "anna", NOW)
    add_token(path, "boris", NOW)
    auth = Authenticator(path)
    assert auth.revoke("boris", UserId("anna")) == ()
    assert [each.id for each in auth.revoke(anna.id, UserId("anna"))] == [anna.id]


DESK = McpClient(name="Desk", id="desk")
DAY_S = 86_400.0


class McpWorld:
    """A tokens file with a key and a browser's login, and a clock that the test turns."""

    def __init__(self, path):
        self.path, self.now = path, 1_800_000_000.0
        self.key, _ = add_token(path, "anna", iso(self.now), operator=True)
        grant = Grant(user=UserId("anna"), token=self.key.id, operator=True)
        secret = add_login(path, grant, iso(self.now), iso(self.now + 30 * DAY_S))
        self.auth = Authenticator(path, clock=lambda: self.now)
        self.login = self.auth.grant(secret, loopback=False, login=True)

    def add(self, client=DESK):
        return add_client(self.path, self.login, client, self.now, 30 * DAY_S)

    def renew(self, refresh, client_id="desk"):
        return renew_client(self.path, refresh, client_id, self.now, 30 * DAY_S)

    def granted(self, secret, **how):
        return self.auth.grant(secret, loopback=False, **how)


def test_an_mcp_client_is_granted_mcp_alone_and_is_no_operator(path):
    world = McpWorld(path)
    made = world.add()
    grant = world.granted(made.access, mcp=True)
    assert (grant.user, grant.operator) == ("anna", False)
    wrong = [world.granted(made.access), world.granted(made.access, login=True), world.granted(made.refresh, mcp=True)]
    wrong += [world.granted(made.access.partition(".")[0], mcp=True), world.granted(made.access, login=True, mcp=True)]
    assert wrong == [None] * 5
    told = load_access(path).tokens[-1].told()
    assert (told["client"], told["login_of"]) == ("Desk", world.key.id)
    assert not any(secret in path.read_text() for secret in (made.access, made.refresh, made.access.partition(".")[0]))
    assert made.access not in repr(made)


def test_tokens_of_an_mcp_client_end(path):
    """The access token after an hour, the refresh token when it was not used for so long as a login lasts."""
    world = McpWorld(path)
    made = world.add()
    world.now += ACCESS_S
    assert world.granted(made.access, mcp=True) is None
    for _ in range(3):
        world.now += 20 * DAY_S
        made = world.renew(made.refresh)
        assert world.granted(made.access, mcp=True) is not None
    world.now += 30 * DAY_S
    assert world.renew(made.refresh) is None


def test_a_refresh_token_that_was_used_before_ends_the_client_whoever_has_it(path):
    """Also the third but last, and an access token in its place."""
    world = McpWorld(path)
    for first in ("refresh", "access"):
        made = latest = world.add()
        for _ in range(3):
            latest = world.renew(latest.refresh)
        assert world.renew(made.refresh, "other") is None
        assert world.granted(latest.access, mcp=True) is not None
        assert world.renew(getattr(made, first)) is None
        assert world.granted(latest.access, mcp=True) is None
        assert world.renew(latest.refresh) is None


def test_an_mcp_client_ends_itself_or_with_the_key_of_its_login(path):
    world = McpWorld(path)
    made = world.add()
    end_client(path, made.access, "other")
    end_client(path, "klaw_x.y", "desk")
    assert world.granted(made.access, mcp=True) is not None
    end_client(path, made.access, "desk")
    assert world.granted(made.access, mcp=True) is None
    made = world.add()
    revoke_tokens(path, world.key.id)
    assert world.granted(made.access, mcp=True) is None
    assert world.add() is None
    assert load_access(path).tokens == ()


def test_mcp_clients_of_a_user_are_bounded_and_take_no_login_s_place(path):
    """The one that was not used for the longest time goes."""
    world = McpWorld(path)
    first, second = world.add(), world.add(McpClient(name="Second", id="second"))
    world.now += 60
    first = world.renew(first.refresh)
    for number in range(MAX_LOGINS - 1):
        world.now += 1
        world.add(McpClient(name="Other", id=f"other-{number}"))
    assert world.granted(first.access, mcp=True) is not None
    assert world.granted(second.access, mcp=True) is None
    assert len(load_access(path).tokens) == MAX_LOGINS + 2
