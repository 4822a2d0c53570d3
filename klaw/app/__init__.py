"""The composition root: the parts of a running Klaw, their start and their stop."""
