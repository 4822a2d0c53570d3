"""Klaw: a memory-first personal chat agent in one Trio process."""

import os

# ONNX Runtime reports to its vendor by default: a device id and a database of events in the user's cache folder, and
# look-ups of a host. It reads this before it is imported; nothing of Klaw can import it before this line.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

__version__ = "0.1.0"
