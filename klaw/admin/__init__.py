"""For whoever runs the server: the admin socket with its commands, and systemd's notifications."""
