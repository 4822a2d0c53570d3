"""Tools that come with Klaw."""
