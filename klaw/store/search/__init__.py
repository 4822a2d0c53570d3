"""Full text and vectors: their rows, and the searches over them."""
