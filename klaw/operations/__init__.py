"""What can be asked of Klaw, one module for each noun; admin socket, command line and slash commands are made of it."""
