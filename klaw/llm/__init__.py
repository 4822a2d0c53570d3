"""The language model side: values, providers, router, slots, and the embedded model's process."""
