"""The keys of engine.yaml for knowledge bases."""

# ruff: noqa: RUF009  ``key`` returns an attrs field, which is what a class body of attrs holds

from collections.abc import Iterator, Mapping

import attrs

from klaw.config.environment import Secret
from klaw.config.keys import ADDRESS, DAY_S, HEADERS, key, section


@attrs.frozen(kw_only=True)
class EndpointConfig:
    """One SPARQL 1.1 endpoint."""

    url: str = key("Its address.", **ADDRESS)
    user: str | None = key("User name for basic authentication.", None, pattern=r"[^\0-\x1f:]+", hint="have no ':'")
    password: Secret | None = key("Goes with user.", None, pattern=r"[^\0-\x1f]+", hint="not be empty")
    headers: Mapping[str, Secret] = key("Further request headers; here belongs a key.", **HEADERS)
    private: bool = key("It may be on this machine or its network.", False)
    users: tuple[str, ...] = key(
        "Users whose knowledge bases may have it as a source; * for everybody. They read with your account.",
        ("local",),
        pattern=r"\*|[a-z0-9][a-z0-9_-]{0,31}",
        hint="be a user's name, or *",
        one_or_more=True,
    )

    def mistakes(self) -> Iterator[tuple[str, str]]:
        if (self.user is None) != (self.password is None):
            yield "", "needs both user and password, or none of them"


@attrs.frozen(kw_only=True)
class SparqlConfig:
    """What graphs are asked: SPARQL endpoints and RDF files."""

    timeout_s: float = key("One graph must have answered within this time.", 10.0, up_to=60)


@attrs.frozen(kw_only=True)
class KnowledgeConfig:
    """Knowledge bases: documents and graphs that chats are answered from."""

    max_tokens: int = key(
        "At most this many tokens of passages in one context of a chat that is bound to a base.",
        1500,
        within=(100, 100_000),
    )
    pairs: int = key("Questions and answers before the current one that such a chat's model sees.", 5, within=(0, 100))
    rewrite: bool = key("Let the model put a question that refers to earlier ones into words of its own.", False)
    max_file_bytes: int = key("Bytes of one uploaded file.", 200_000_000, within=(1, 10_000_000_000))
    max_user_bytes: int = key(
        "Bytes of all files that one user has added to bases.", 5_000_000_000, within=(1, 1_000_000_000_000_000)
    )
    folders: tuple[str, ...] = key(
        "Users may add folders below these, and below their own workspace; the operator may add any.",
        (),
        pattern=r"/[^\x00-\x1f]*",
        hint="be an absolute path",
    )
    sparql: SparqlConfig = section(SparqlConfig)
    endpoints: Mapping[str, EndpointConfig] = key(
        "SPARQL endpoints by name: those with credentials, or in your network.",
        factory=dict,
        names=r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}",
        names_hint="be up to 64 letters, digits, '.', '_' or '-'",
    )
    max_files: int = key("Files of one watched folder.", 20_000, within=(1, 1_000_000))
    scan_s: float = key(
        "A watched folder is scanned at least this often, also without news from the system.", 300.0, within=(1, DAY_S)
    )
    web_refresh_hours: float = key("A web page is fetched again when it is so old; 0 never.", 24.0, within=(0, 8784))
