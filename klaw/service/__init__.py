"""Klaw as a systemd service. ``files/`` has links into conf/; a wheel holds the files themselves."""
