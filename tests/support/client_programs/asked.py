"""What the programs are asked and what they must get; ``model.py`` understands it."""

import base64
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

URL, NAME = sys.argv[1:]
V1, KEY, MANY, BIN = f"{URL}/v1", "none", 50, Path(sys.executable).parent
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAEUlEQVR4nGP4z8CAFWEXHbQSACj/P8Fu7N9hAAAAAElFTkSuQmCC"
)
DATA = "data:image/png;base64," + base64.b64encode(PNG).decode()
CALL, CITY, FAIL = 'CALL weather {"city": "Riga"}', 'JSON {"city": "Riga", "people": 7}', "FAIL 400"
CITY_CALL = 'CALL City {"city": "Riga", "people": 7}'
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"type": "function", "function": {"name": "weather", "description": "Tells it", "parameters": PARAMETERS}}
PET = f"My pet is called {NAME}-{time.time_ns()}"
IMAGES = [{"type": "text", "text": "IMAGES"}, {"type": "image_url", "image_url": {"url": DATA}}]


def user(content):
    return [{"role": "user", "content": content}]


def assistant(content):
    return [{"role": "assistant", "content": content}]


def weather(city: str) -> str:
    """Tells the weather."""
    return f"SUNNY in {city}"


def same(found, wanted):
    assert found == wanted, f"{found!r} is not {wanted!r}"


def has(found, *parts):
    for part in parts:
        assert part in str(found), f"{part!r} is not in {str(found)[:500]!r}"


def fails(act, *parts):
    """The exception has these parts in its text."""
    try:
        act()
    except Exception as error:
        return has(f"{type(error).__name__} {error}", *parts)
    raise AssertionError("it did not fail")


def at_once(ask):
    with ThreadPoolExecutor(MANY) as threads:
        same(list(threads.map(lambda number: ask(f"SAY n{number}"), range(MANY))), [f"n{n}" for n in range(MANY)])


def city():
    from pydantic import create_model

    return create_model("City", city=(str, ...), people=(int, ...))


def is_city(found):
    found = found if isinstance(found, dict) else found.model_dump()
    same((found["city"], found["people"]), ("Riga", 7))
