"""Klaw as a service of systemd: what is put on a machine (units), putting it there (install), looking at it (watch).

``files/`` has links to what stands in conf/; a wheel holds the files themselves.
"""
