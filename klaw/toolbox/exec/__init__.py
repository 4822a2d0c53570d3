"""Running programs on this machine for the model: what runs without asking, the sandbox, the process and its output."""
