"""The child process that runs llama.cpp: an OpenAI-compatible server on a loopback port. Imports nothing of Klaw.

It prints one JSON line on stdout, ``{"port": N}`` when the model is loaded or ``{"error": CLASS, "reason": TEXT}``, and
lives until its stdin closes, also because the parent is killed. Signals that a terminal or systemd sends to the whole
group are ignored, so that running answers can finish while the parent stops in order.

Prompts and answers appear nowhere: llama.cpp logs errors only, to the null device; what it says while it loads, before
the first prompt, tells the parent why a model cannot be loaded. Every request needs the key, so other users of the
machine get nothing; it comes in an environment variable, because a command line is public.
"""

import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

KEY_VARIABLE = "KLAW_LOCAL_LLM_KEY"

_STDIN, _STDOUT, _STDERR = 0, 1, 2
_LOG_ERRORS_ONLY = 1
_SAID_BYTES = 16_384
_REASON_CHARS = 200
_LOGGED_WITHIN_S = 5.0
_PROMPT_CACHE_MIB = 256
"""Prompts of earlier calls that llama.cpp keeps for reuse. Its default of 8 GiB would fill a small machine."""
_PING_S = 10
"""A comment on a silent stream, so that a long prompt on a slow machine is no time-out."""


def parameters(options: Mapping[str, Any], key: str) -> Any:
    """llama.cpp's parameters. ``context`` is per slot; llama.cpp divides its own number by the slots."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = options["model"]
    params.model_alias = {options["name"]}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [key]
    params.n_ctx = options["context"] * options["parallel"]
    params.n_parallel = options["parallel"]
    params.n_threads_http = options["parallel"] + 2
    cores = len(os.sched_getaffinity(0))
    # llama.cpp's threads wait for each other by spinning while it generates. When another process wants one of the
    # cores, as Klaw does in every turn, all of them get slower, up to ten times. Reading a prompt has few such waits.
    params.cpuparams.n_threads = options["threads"] or max(1, cores - 1)
    params.cpuparams_batch.n_threads = options["threads"] or cores
    params.cache_ram_mib = _PROMPT_CACHE_MIB
    params.sse_ping_interval = _PING_S
    params.use_jinja = True
    params.verbosity = _LOG_ERRORS_ONLY
    # Nothing but the API: no page, no view of other requests' prompts, no look-ups in the network.
    params.ui = False
    params.endpoint_slots = False
    params.endpoint_props = False
    params.cors_origins = ""
    params.offline = True
    return params


def main(argument: str) -> int:
    """Serve a model. ``argument`` is JSON: ``model`` (a GGUF file), ``name`` (which the API shows), ``context`` (length
    in tokens of each slot), ``parallel`` (slots), ``threads`` (0: one for each core, one less to generate)."""
    options, key = json.loads(argument), os.environ.pop(KEY_VARIABLE)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # Before loading, which may take minutes: the parent may be gone by then.
    orphaned = threading.Thread(target=_end_with_parent, daemon=True)
    orphaned.start()
    report = os.dup(_STDOUT)
    null, said = os.open(os.devnull, os.O_WRONLY), os.memfd_create("loading")
    os.dup2(null, _STDOUT)
    os.dup2(said, _STDERR)
    try:
        import xllamacpp

        server = xllamacpp.Server(parameters(options, key))
        answer: dict[str, object] = {"port": urlsplit(server.listening_address).port}
    except Exception as error:  # noqa: BLE001 - the class name is all that the parent may see
        answer = {"error": type(error).__name__, "reason": _first_error(said)}
    os.dup2(null, _STDERR)
    os.close(said)
    os.write(report, json.dumps(answer).encode() + b"\n")
    os.close(report)
    if "error" in answer:
        return 1
    orphaned.join()
    return 0


def _first_error(said: int) -> str:
    """The first error of llama.cpp's log, without its time. A thread writes it, often after the load has failed."""
    until = time.monotonic() + _LOGGED_WITHIN_S
    while True:
        found = re.search(rb"^\S+ E +(.+)\n", os.pread(said, _SAID_BYTES, 0), re.MULTILINE)
        if found or time.monotonic() > until:
            break
        time.sleep(0.05)
    reason = found[1].decode("utf-8", "replace")[:_REASON_CHARS] if found else ""
    return "".join(letter if letter.isprintable() else "?" for letter in reason)


def _end_with_parent() -> None:
    while os.read(_STDIN, 4096):
        pass
    os._exit(0)  # at once: a generation in progress has nobody to read it


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
