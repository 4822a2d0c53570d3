"""Programs of others that use Klaw as their model: what each does, the model behind Klaw, and the table of results."""
