"""The embedded language model: a supervised child process, and the provider that talks to it."""
