"""The ONNX embedding model. Import ``klaw.memory.onnx.model`` where it is used: it loads ONNX Runtime."""
