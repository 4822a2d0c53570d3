"""``klaw channels add``: connects an account of a messenger, by the running server."""

import os
import sys
from typing import Any

import attrs

from klaw.cli.admin_call import call
from klaw.cli.operations import Here, command
from klaw.domain.names import LOCAL_USER
from klaw.errors import KlawError
from klaw.operations.channels import OfMessenger
from klaw.operations.operation import Noun, argument

NOUN = Noun("channels", "talk with Klaw in Telegram and Matrix (docs/channels.md)", local=True)
ADD_S = 90.0
_WHERE = {
    "telegram": "Write to @BotFather in Telegram, send /newbot, and paste the token that it answers: ",
    "matrix": "Paste the access token of the bot's account (in Element: All settings, Help & About, Access token): ",
}


@attrs.frozen(kw_only=True)
class AccountToAdd(OfMessenger):
    token_env: str | None = argument("the environment variable that holds the token", metavar="VARIABLE")


@command(NOUN, "channels_add", AccountToAdd, cli="add")
def add(asked: AccountToAdd, here: Here) -> dict[str, Any]:
    """Connect an account of a messenger, and show a link that connects you. Its token goes into secrets.env."""
    from klaw.operations.host.token import in_blocks
    from klaw.operations.lines import minute

    token = os.environ.get(asked.token_env) if asked.token_env else _asked(asked.type)
    if not token:
        raise KlawError(f"the environment variable {asked.token_env} is not set" if asked.token_env else "no token")
    given = {name: each for name, each in attrs.asdict(asked).items() if name != "token_env"}
    given |= {"token": token, "user": asked.user or LOCAL_USER}
    made = call(here.paths, "channels_add", timeout_s=ADD_S, **given)
    here.say(f"{made['name']} works as {made['bot']}.", *in_blocks(made["url"]), made["url"])
    here.say(
        f"Open this address, or scan it with the phone, and send the code {made['code']}: you are connected as user"
        f" {made['user']}. The code holds once, until {minute(made['expires_at'])}."
    )
    return {name: value for name, value in made.items() if name != "picture"}


def _asked(messenger: str) -> str:
    from getpass import getpass

    if not sys.stdin.isatty():
        raise KlawError("say with --token-env which environment variable holds the token")
    return getpass(_WHERE[messenger], stream=sys.stderr).strip()
