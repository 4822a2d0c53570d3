"""The wire protocol: its frames and how they are read and written. Shared by the gateway and the client."""
