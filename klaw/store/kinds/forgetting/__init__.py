"""What forgetting asks of the nouns, and takes out of their rows."""
