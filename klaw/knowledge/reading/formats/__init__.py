"""How each format is read. These modules run in the child only, and import their libraries when they are needed."""
