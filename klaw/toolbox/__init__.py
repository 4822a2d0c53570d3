"""Tools that a model may call: what a tool is, which there are, and how calls are carried out."""
