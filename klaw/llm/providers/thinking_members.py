"""How each service is asked to think more, less or not at all. Pure."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from klaw.domain.message import ThinkingLevel
from klaw.llm.types import ChatMessage, Request

MOST_TOKENS: Mapping[ThinkingLevel | None, int] = {"off": 0, "low": 2_048, "medium": 8_192, "high": 24_576, None: 8_192}
"""Of the thinking before one answer, beside those of the answer. None: as much as the model likes by itself."""
CONTEXT_SHARE = 4
"""Thinking takes at most this part of the context: a quarter."""
LEAST_BUDGET = 1_024
"""Anthropic's API takes no smaller ``budget_tokens``."""
MEMBERS = frozenset(
    ("reasoning", "reasoning_effort", "think", "thinking", "thinking_budget", "enable_thinking", "chat_template_kwargs")
)
_THINKERS = re.compile(
    r"\br1\b|qwq|think|reason|magistral|gpt-oss|gpt-[5-9]|\bo[134](?:-|$)|qwen-?3(?!.*(?:instruct|coder))|glm-(?:4\.[5-9]|[5-9])"
    r"|deepseek-v(?:3\.[1-9]|[4-9])|claude-(?:3-7|[a-z]+-[4-9])|gemini-(?:2\.5|[3-9])|grok-(?:3-mini|[4-9])|minimax-m[2-9]",
    re.IGNORECASE,
)
_WITH_ADAPTIVE = re.compile(r"claude-[a-z]+-(\d+)(?:[-.](\d{1,2}))?(?!\d)", re.IGNORECASE)


def is_known_thinker(model: str) -> bool:
    """Whether the name says that a model can think."""
    return bool(_THINKERS.search(model))


def most_tokens(
    level: ThinkingLevel | None, *, context_tokens: int, output_tokens: int | None, answer_tokens: int
) -> int:
    """How many tokens thinking may take beside an answer of ``answer_tokens``. ``output_tokens``: what the model can
    write at most, None if that is not known."""
    most = min(MOST_TOKENS.get(level, 0), context_tokens // CONTEXT_SHARE)
    return max(0, most if output_tokens is None else min(most, output_tokens - answer_tokens))


# -- OpenAI's API and those that look like it -------------------------------------------------------------------------


def effort_word(level: ThinkingLevel) -> str:
    return "none" if level == "off" else level


def _told_to_template(level: ThinkingLevel) -> dict[str, Any]:
    """For llama.cpp and vLLM, whose templates take it, and Ollama and LM Studio, which take the effort."""
    effort = {} if level == "off" else {"reasoning_effort": level}
    own = {"enable_thinking": level != "off", **effort}
    return {"chat_template_kwargs": own, "reasoning_effort": effort_word(level)}


_WAYS: Mapping[str, Callable[[ThinkingLevel, int], dict[str, Any]]] = {
    "effort": lambda level, _: {"reasoning_effort": effort_word(level)},
    "switch": lambda level, _: {"thinking": {"type": "disabled" if level == "off" else "enabled"}},
    "reasoning": lambda level, _: {"reasoning": {"enabled": False} if level == "off" else {"effort": level}},
    "budget": lambda level, tokens: {
        "enable_thinking": level != "off",
        **({"thinking_budget": tokens} if level != "off" and tokens else {}),
    },
    "template": lambda level, _: _told_to_template(level),
}
_BY_HOST: Mapping[str, str] = {
    **dict.fromkeys(("openai.com", "azure.com", "googleapis.com", "groq.com", "x.ai", "mistral.ai"), "effort"),
    **dict.fromkeys(("cerebras.ai", "fireworks.ai", "perplexity.ai"), "effort"),
    **dict.fromkeys(("deepseek.com", "z.ai", "bigmodel.cn", "moonshot.ai", "moonshot.cn", "volces.com"), "switch"),
    **dict.fromkeys(("aliyuncs.com", "siliconflow.cn", "siliconflow.com"), "budget"),
    "openrouter.ai": "reasoning",
}
_THOUGHTS = ("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks")


def of_openai(request: Request, base_url: str) -> dict[str, Any]:
    """The members of a request to an API like OpenAI's. Thinking is off where the service wants back what it thought
    before the calls of this turn, and that is lost, as after a restart."""
    if request.thinking is None:
        return {}
    host = urlsplit(base_url).hostname or ""
    way = next((way for name, way in _BY_HOST.items() if host == name or host.endswith(f".{name}")), "template")
    wants_it_back = way == "switch" or (way == "reasoning" and request.model.startswith("anthropic/"))
    if wants_it_back and not _has_its_thoughts(request.messages):
        return _WAYS[way]("off", 0)
    level = request.thinking.level
    return _WAYS[way](level, request.thinking.tokens) if level is not None else {}


def _has_its_thoughts(messages: Sequence[ChatMessage]) -> bool:
    """Whether the thinking before each call since the last question goes along."""
    for message in reversed(messages):
        if message.role == "user":
            break
        if message.tool_calls and not any(message.echo and message.echo.message.get(key) for key in _THOUGHTS):
            return False
    return True


def of_ollama(request: Request) -> bool | str | None:
    """``think`` of its own API, where only gpt-oss takes levels."""
    level = request.thinking.level if request.thinking is not None else None
    if level is None or (level != "off" and "gpt-oss" in request.model):
        return level
    return level != "off"


# -- Anthropic's API --------------------------------------------------------------------------------------------------


def of_anthropic(request: Request, dialogue: Sequence[Mapping[str, Any]], max_tokens: int) -> dict[str, Any]:
    """``thinking``, and ``effort`` for ``output_config``; ``max_tokens`` is that of the body."""
    asked = request.thinking
    if asked is None or asked.level is None:
        return {}
    version = _WITH_ADAPTIVE.search(request.model)
    is_new = version is not None and (int(version[1]), int(version[2] or 0)) >= (4, 6)
    adapts = is_new if asked.adapts is None else asked.adapts
    budget = min(asked.tokens, max_tokens * 3 // 4)
    if asked.level == "off" or budget < LEAST_BUDGET or not (adapts or _may_think(dialogue)):
        return {"thinking": {"type": "disabled"}}
    if adapts:
        return {"thinking": {"type": "adaptive", "display": "summarized"}, "effort": asked.level}
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def _may_think(dialogue: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a turn that goes on begins with thinking, as the API demands of one that thinks."""
    asked = [
        place
        for place, message in enumerate(dialogue)
        if message["role"] == "user" and all(block["type"] != "tool_result" for block in message["content"])
    ]
    going_on = dialogue[asked[-1] + 1 :] if asked else dialogue
    return not going_on or going_on[0]["content"][0]["type"] in ("thinking", "redacted_thinking")
