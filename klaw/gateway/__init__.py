"""The gateway: WebSocket clients, their sessions, who watches which chat, tokens. Wire protocol: docs/protocol.md."""
