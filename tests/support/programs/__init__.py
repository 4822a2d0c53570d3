"""Programs that tests start or talk to: servers, their clients, and instruments around Klaw's own server."""
