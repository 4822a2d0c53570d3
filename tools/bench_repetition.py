"""How often the built-in model repeats itself: 25 English and 25 Russian prompts, as a new chat would ask them.

    python tools/bench_repetition.py [--models DIR] [--sampling JSON] [--max-tokens N] [--no-stop] [--json FILE]
    python tools/bench_repetition.py --replay FILE

Every prompt is asked with the prompt files of `klaw init` in its language. An answer loops when the sentence or line at
its end, of three words or more, stands in it four times, or its end packs to less than a fifth. Ten more questions ask
for a fact that stands in the prompt: what keeps a model from repeating itself also keeps it from repeating that.
`--sampling` takes the place of Klaw's own, `--no-stop` lets a repetition run to the end: both for comparing. `--replay`
reads the answers of a run with `--no-stop` and says what the stop would have made of the very same ones.
"""

import argparse
import json
import re
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import trio

sys.path.insert(0, str(Path(__file__).parents[1]))

from klaw.actor.clock import SystemClock
from klaw.actor.log import configure as quiet
from klaw.actor.supervisor import Supervisor
from klaw.agent.workspace import Workspace
from klaw.config.llm import LocalModelConfig
from klaw.domain.names import LOCAL_USER
from klaw.llm import local_model as local_provider
from klaw.llm.local_model import ACTOR_NAME, LocalModel, LocalProcess, LocalProvider
from klaw.llm.providers.http import HttpProvider, HttpSettings
from klaw.llm.providers.openai import OpenAiDialect
from klaw.llm.repetition import RepetitionStop
from klaw.llm.types import ChatMessage, Completion, OnDelta, Request
from klaw.setup.answers import Language, Names
from klaw.setup.make import make_workspace

MODEL = "smollm2-135m-instruct"
AT_ONCE = 2
END_CHARS = 600

ENGLISH = (
    "Hello!", "Hi, how are you today?", "I'm feeling a bit sad.", "Thank you, that was kind of you.", "Tell me a joke.",
    "Tell me a story about a dragon.", "What can you do?", "Who are you?", "Are you glad that I'm here?",
    "Write a short poem about autumn.", "Give me ten ideas for dinner.", "How do I bake bread?",
    "Explain gravity to a child.", "Write a Python function that adds two numbers.", "What should I read next?",
    "Plan a weekend in Rome.", "Why is the sky blue?", "List the planets.", "I had a bad day at work.",
    "Write a letter to my landlord about the heating.", "How can I sleep better?", "What is the meaning of life?",
    "Summarise the history of computers.", "Say something nice.", "Let's talk about music.",
)  # fmt: skip
RUSSIAN = (
    "Привет!", "Привет, как дела?", "Мне немного грустно.", "Спасибо, ты очень помог.", "Расскажи анекдот.",
    "Расскажи сказку про дракона.", "Что ты умеешь?", "Кто ты?", "Ты рад, что я здесь?",
    "Напиши короткое стихотворение об осени.", "Дай десять идей для ужина.", "Как испечь хлеб?",
    "Объясни ребёнку, что такое тяготение.", "Напиши функцию на Python, которая складывает два числа.",
    "Что мне почитать?", "Составь план выходных в Риме.", "Почему небо голубое?", "Перечисли планеты.",
    "У меня был плохой день на работе.", "Напиши письмо хозяину квартиры про отопление.", "Как лучше спать?",
    "В чём смысл жизни?", "Расскажи историю компьютеров.", "Скажи что-нибудь приятное.", "Поговорим о музыке.",
)  # fmt: skip
FACTS = (
    ("The user's dog is called Biscuit.", "What is my dog called?", "biscuit"),
    ("The user lives in Lisbon.", "Where do I live?", "lisbon"),
    ("The user's sister is called Olga.", "What is my sister's name?", "olga"),
    ("The wifi password is tangerine-42.", "What is the wifi password?", "tangerine-42"),
    ("The user works as a nurse.", "What is my job?", "nurse"),
    ("The user is allergic to peanuts.", "What am I allergic to?", "peanut"),
    ("The user's car is a blue Volvo.", "What car do I drive?", "volvo"),
    ("The user's birthday is the 4th of May.", "When is my birthday?", "may"),
    ("The user plays the violin.", "Which instrument do I play?", "violin"),
    ("The dentist's appointment is on Friday.", "When do I see the dentist?", "friday"),
)

_UNITS = re.compile(r"[^.!?\n]+")


@attrs.frozen(kw_only=True)
class Answer:
    language: str
    prompt: str
    text: str
    tokens: int
    seconds: float

    @property
    def loops(self) -> bool:
        units = [" ".join(words) for unit in _UNITS.findall(self.text.lower()) if len(words := unit.split()) >= 3]
        counts = Counter(units)
        end = self.text[-END_CHARS:].encode()
        packed = len(zlib.compress(end, 9)) / max(1, len(end))
        # The last unit may be cut off.
        return any(counts[unit] >= 4 for unit in units[-2:]) or (len(end) >= END_CHARS and packed < 0.2)


class Bare:
    """The local model without what Klaw puts around it."""

    def __init__(self, model: LocalModel, sampling: Mapping[str, Any]) -> None:
        self._model = model
        self._sampling = sampling

    async def stream(self, request: Request, on_delta: OnDelta) -> Completion:
        endpoint = await self._model.wait_settled()
        assert endpoint is not None
        settings = HttpSettings(
            name="local",
            base_url=endpoint.base_url,
            api_key=endpoint.key,
            extra_body=self._sampling,
            timeout_s=300,
            max_retries=0,
        )
        provider = HttpProvider(settings, OpenAiDialect())
        try:
            return await provider.stream(request, on_delta)
        finally:
            await provider.aclose()


async def measure(options: argparse.Namespace) -> list[Answer]:
    """Ask everything, ``AT_ONCE`` questions at a time."""
    answers: list[Answer] = []
    model = LocalModel()
    settings = LocalModelConfig(model=MODEL, context_tokens=4096)
    sampling = json.loads(options.sampling) if options.sampling else local_provider.SAMPLING
    provider = (
        Bare(model, sampling) if options.no_stop or options.sampling else LocalProvider(model, ready_within_s=120)
    )
    system = {language: _system(language) for language in ("en", "ru")}
    asked = [("en", system["en"], text) for text in ENGLISH] + [("ru", system["ru"], text) for text in RUSSIAN]
    asked += [("fact", f"{system['en']}\n\n{fact}", question) for fact, question, _ in FACTS]
    places = trio.CapacityLimiter(AT_ONCE)

    async def ask(language: str, about: str, text: str) -> None:
        messages = (ChatMessage(role="system", content=about), ChatMessage(role="user", content=text))
        request = Request(
            model=MODEL, messages=messages, max_tokens=options.max_tokens, temperature=local_provider.TEMPERATURE
        )
        async with places:
            began, pieces = time.monotonic(), 0

            def note(_: object) -> None:
                nonlocal pieces
                pieces += 1

            done = await provider.stream(request, note)
            took = time.monotonic() - began
        answers.append(Answer(language=language, prompt=text, text=done.text, tokens=pieces, seconds=took))
        if options.json:  # a run takes long
            options.json.write_text(json.dumps([attrs.asdict(each) for each in answers], ensure_ascii=False, indent=1))
        print(f"{len(answers)} of {len(asked)}", file=sys.stderr)

    async with trio.open_nursery() as outer:
        supervisor = Supervisor(outer, SystemClock())
        await supervisor.start(LocalProcess(settings, options.models, model).spec())
        async with trio.open_nursery() as nursery:
            for each in asked:
                nursery.start_soon(ask, *each)
        await supervisor.stop(ACTOR_NAME, "done")
        outer.cancel_scope.cancel(reason="done")
    return answers


def _system(language: Language) -> str:
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder) / "workspace"
        workspace.mkdir(mode=0o700)
        make_workspace(workspace, Names(language=language), dry_run=False)
        return Workspace(workspace, Path(folder) / "data").read(LOCAL_USER).system_prompt


def report(answers: Sequence[Answer]) -> str:
    """A row for each language, and how many facts came back."""
    rows = ["| prompts | loop | tokens, median | longest | s, median |", "|---|---|---|---|---|"]
    for language in ("en", "ru"):
        own = [answer for answer in answers if answer.language == language]
        if not own:
            continue
        tokens = sorted(answer.tokens for answer in own)
        seconds = sorted(answer.seconds for answer in own)
        loops = sum(answer.loops for answer in own)
        middle = len(own) // 2
        rows.append(f"| {len(own)} {language} | {loops} | {tokens[middle]} | {tokens[-1]} | {seconds[middle]:.1f} |")
    wanted = {question: word for _, question, word in FACTS}
    told = sum(wanted[answer.prompt] in answer.text.lower() for answer in answers if answer.language == "fact")
    return "\n".join([*rows, f"facts of the prompt that were told: {told} of {len(FACTS)}"])


def stopped(answer: Answer) -> Answer:
    """The answer as far as the stop would have let it come, token by token as far as that is known."""
    stop, shown = RepetitionStop(), ""
    step = max(1, round(len(answer.text) / max(1, answer.tokens)))
    read = 0
    for place in range(0, len(answer.text), step):
        shown += stop.feed(answer.text[place : place + step])
        read = min(len(answer.text), place + step)
        if stop.looped:
            break
    shown += stop.end()
    share = read / max(1, len(answer.text))
    return attrs.evolve(answer, text=shown, tokens=round(answer.tokens * share), seconds=answer.seconds * share)


def main() -> None:
    """Entry point: see the module."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--models", type=Path, default=Path(".models"), help="folder of pulled models")
    parser.add_argument("--sampling", help="members of the request body, in place of Klaw's own; without the stop")
    parser.add_argument("--max-tokens", type=int, default=512)
    parser.add_argument("--no-stop", action="store_true", help="do not stop repetitions")
    parser.add_argument("--json", type=Path, help="write all answers there")
    parser.add_argument("--replay", type=Path, help="answers of an earlier run, from --json")
    options = parser.parse_args()
    if options.replay:
        answers = [Answer(**each) for each in json.loads(options.replay.read_text())]
        print(report(answers), "", "with the stop:", report([stopped(answer) for answer in answers]), sep="\n")
        return
    quiet("error", "auto")
    answers = trio.run(measure, options)
    print(report(answers))


if __name__ == "__main__":
    main()
