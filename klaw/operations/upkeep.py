"""What whoever runs the server looks after from the page and over HTTP: tokens, models and a check-up. The command line
has the same without a server.
"""

from typing import TYPE_CHECKING, cast

import attrs

from klaw.operations.handler import OPERATOR, Caller, Parts
from klaw.operations.operation import Name, Nothing, Noun, OperationError, Scope, required
from klaw.operations.perform import operations, perform, read

if TYPE_CHECKING:
    from klaw.operations.answers.server import CheckUp, Models, RevokedTokens, TestedModel, Tokens

TOKENS = Noun("token", "list and revoke access tokens and logins (docs/security.md)")
MODELS = Noun("models", "list and test the models of the configuration (docs/models.md)")
DOCTOR = Noun("doctor", "check the installation (docs/operations.md)")


@attrs.frozen(kw_only=True)
class Revoked:
    name: Name = required("all tokens of this user, or one token or login by its id")


@attrs.frozen(kw_only=True)
class Tested:
    model: Name = required("PROVIDER/MODEL")


@TOKENS.operation("token_list", Nothing, scope=Scope.OPERATOR)
async def tokens(_asked: Nothing, _caller: Caller, parts: Parts) -> "Tokens":
    """List the tokens and the browsers that are logged in: their ids, users and dates."""
    access = await parts.core.files.run(parts.listeners.access.listed)
    return {"allow_local": access.local, "tokens": [token.told() for token in access.tokens]}


@TOKENS.operation("token_revoke", Revoked, scope=Scope.OPERATOR, changes=True)
async def revoke(asked: Revoked, _caller: Caller, parts: Parts) -> "RevokedTokens":
    """Revoke the tokens of a user, or one token or login; their connections are closed."""
    revoked = await parts.core.files.run(parts.listeners.access.revoke, asked.name)
    if not revoked:
        raise OperationError("unknown_token", "no token has this user or id", field="name")
    return {"revoked": [token.told() for token in revoked]}


@MODELS.operation("models_list", Nothing, scope=Scope.OPERATOR)
async def models(_asked: Nothing, _caller: Caller, parts: Parts) -> "Models":
    """List the models of the configuration, the usual one first."""
    from klaw.llm.registry import configured_models

    config = parts.llm.core.config
    return {"models": configured_models(config), "default": config.routing.default}


@MODELS.operation("models_test", Tested, scope=Scope.OPERATOR, changes=True, deadline_s=120)
async def test(asked: Tested, _caller: Caller, parts: Parts) -> "TestedModel":
    """Ask a model a few tiny questions and say what works; it costs a few tokens."""
    from klaw.errors import ConfigError
    from klaw.llm.trial import trials_of

    try:
        trials = trials_of(parts.llm.core.config, parts.llm.router, asked.model)
    except ConfigError as error:
        raise OperationError("bad_model", str(error), field="model") from None
    return {"model": asked.model, "checks": [check for trial in trials for check in await trial.run()]}


@DOCTOR.operation("doctor", Nothing, scope=Scope.OPERATOR, deadline_s=60)
async def doctor(_asked: Nothing, _caller: Caller, parts: Parts) -> "CheckUp":
    """Check the installation and say what to do; it changes nothing."""
    about = [await perform(read(operations()[name], {}), OPERATOR, parts) for name in ("status", "health")]
    return cast("CheckUp", await parts.listeners.check_up(*about))
