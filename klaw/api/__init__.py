"""Plain HTTP on the gateway's port: one API for every client, made from the operations (docs/api.md)."""
