"""The keys of engine.json for knowledge bases."""

import attrs

from klaw.config.keys import key


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
