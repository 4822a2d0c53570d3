"""For the operator: the admin socket, and systemd's notifications."""
