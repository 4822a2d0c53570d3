"""Making a new installation: the workspace, the configuration, and taking over a workspace of another agent."""
