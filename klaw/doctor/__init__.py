"""``klaw doctor``: only reads, and says what is wrong and what to do. No finding holds what was said."""
