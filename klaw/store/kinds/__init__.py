"""What is stored, by nouns. Times (``at``) are ISO-8601 UTC with milliseconds."""
