"""The page: static files without a build step, and Markdown made harmless on the server."""
