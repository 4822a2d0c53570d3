"""Vectors of texts. ``model`` loads ONNX Runtime: import it where it is used."""
