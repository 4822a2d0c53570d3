"""Vectors: what of a text is embedded, the ONNX model, and the actor that does it.

Import ``klaw.memory.embed.model`` where it is used: it loads ONNX Runtime."""
