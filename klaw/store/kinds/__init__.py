"""What is stored, one module per noun: the functions that change it, for ``writer.run``. Their times (``at``) are
ISO-8601 UTC with milliseconds."""
