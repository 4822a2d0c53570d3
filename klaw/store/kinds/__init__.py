"""What is stored, one module per noun: the functions that change it, for ``writer.run``."""
