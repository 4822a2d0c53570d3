"""Imitations of services of models, made from their documentation. They are strict: a path that the service does not
have is refused, and so is a wrong key, each in the service's own form."""
