"""``klaw doctor``: looks at an installation, running or stopped, and says in plain words what is wrong and what to do.

Only reads. No finding holds message content: names, ids and counts only.
"""
