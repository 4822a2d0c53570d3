"""Klaw: a memory-first personal chat agent in one Trio process."""

import os

# ONNX Runtime reports to its vendor by default: a device id and a database of events in the user's cache folder, and
# look-ups of a host. It reads this before it is imported; nothing of Klaw can import it before this line.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
# numpy reads this when it is imported. Products as small as recall's take 2.5 times as long with two threads, and 5
# times the CPU (tokens of 200 messages: 0.9 ms against 2.4).
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

__version__ = "0.1.0"
