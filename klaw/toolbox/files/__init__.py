"""Files of the workspace for the file tools: safe paths, reading, atomic writing, patches."""
