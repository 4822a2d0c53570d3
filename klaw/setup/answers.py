"""The questions of a new installation, possible answers, and results. Pure."""

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

import attrs

from klaw.config.llm import LOCAL_PROVIDER
from klaw.config.services import OTHER, SERVICES
from klaw.domain.text import normalized
from klaw.errors import KlawError

Language: TypeAlias = Literal["en", "ru"]
LANGUAGES: tuple[Language, ...] = ("en", "ru")

DEFAULT_NAME = "Klaw"
MAX_NAME_CHARS = 64
NO_KEY = "-"
"""No key is needed; an empty answer takes the usual variable."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_URL = re.compile(r"https?://[^/\s@?#]+(/[^\s?#]*)?")


Outcome: TypeAlias = Literal["made", "taken", "kept", "same", "skipped"]
"""``kept``: it existed and stays as it is; ``same``: with the same content."""


class SetupRefused(KlawError):
    """The set-up cannot be done as asked; the text names the option that is wrong."""


@attrs.frozen(kw_only=True)
class SetupStep:
    path: str
    """Its path in the workspace, or the name of the configuration."""
    outcome: Outcome
    why: str = ""


def count(steps: Sequence[SetupStep], *outcomes: Outcome) -> int:
    return sum(step.outcome in outcomes for step in steps)


PROVIDERS = (LOCAL_PROVIDER, *SERVICES)


@attrs.frozen(kw_only=True)
class Names:
    language: Language
    agent: str = DEFAULT_NAME
    user: str = ""


@attrs.frozen(kw_only=True)
class ChosenModel:
    provider: str = LOCAL_PROVIDER
    model: str = ""
    base_url: str = ""
    key_env: str = ""


def language_of(environ: Mapping[str, str]) -> Language:
    value = next((environ[name] for name in ("LC_ALL", "LC_MESSAGES", "LANG") if environ.get(name)), "")
    return "ru" if value.lower().startswith("ru") else "en"


def language(text: str) -> Language:
    """Raises SetupRefused."""
    found = next((known for known in LANGUAGES if text.strip().lower() == known), None)
    if found is None:
        raise SetupRefused("--language: en or ru")
    return found


def name(text: str, option: str) -> str:
    """A name of one line. Raises SetupRefused, which names ``option``."""
    cleaned = normalized("NFC", text.strip())
    if len(cleaned) > MAX_NAME_CHARS:
        raise SetupRefused(f"{option}: at most {MAX_NAME_CHARS} characters")
    if not cleaned.isprintable():
        raise SetupRefused(f"{option}: printable characters of one line only")
    return cleaned


def model(*, provider: str, model: str, base_url: str, key_env: str | None) -> ChosenModel:
    """Check the answers about the model and fill in what is known of its service; ``base_url`` replaces that.
    ``key_env`` is the variable with the key: empty for none, None for the usual one. Raises SetupRefused."""
    provider = known_provider(provider)
    if provider == LOCAL_PROVIDER:
        given = next((option for option, value in (("--model", model), ("--base-url", base_url)) if value), None)
        if given or key_env:
            raise SetupRefused(f"{given or '--key-env'}: goes with a --provider other than {LOCAL_PROVIDER}")
        return ChosenModel()
    service = SERVICES[provider]
    return ChosenModel(
        provider=provider,
        model=model_name(model, provider),
        base_url=address(base_url or service.base_url),
        key_env=key_variable(key_env if key_env is not None else service.key_env),
    )


def known_provider(text: str, *, small: bool = False) -> str:
    """``small``: not the built-in one, which takes 800 MB. Raises SetupRefused."""
    known = PROVIDERS[small:]
    text = OTHER if text == "custom" else text  # as it was called before
    if text not in known:
        close = difflib.get_close_matches(text[:64].lower(), known, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        without = ", since --small leaves out the built-in model" if small else ""
        raise SetupRefused(f"--provider: one of {', '.join(known)}{without}{hint}")
    return text


def model_name(text: str, provider: str) -> str:
    """Raises SetupRefused."""
    if not re.fullmatch(r"\S+", text):
        raise SetupRefused(f"--model: the model's name as {provider} calls it, without spaces")
    return text


def address(text: str) -> str:
    """Raises SetupRefused."""
    if not _URL.fullmatch(text):
        raise SetupRefused("--base-url: an http:// or https:// address up to its version part (usually /v1)")
    return text


def key_variable(text: str) -> str:
    """Empty for none, as ``-``. Raises SetupRefused."""
    name = "" if text == NO_KEY else text
    if name and not _VARIABLE.fullmatch(name):
        raise SetupRefused("--key-env: the name of an environment variable, not the key itself")
    return name
