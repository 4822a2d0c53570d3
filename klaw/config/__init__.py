"""Configuration: what the keys are (schema), where files live (paths), how a file becomes values (load)."""
