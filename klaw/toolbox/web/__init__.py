"""Reading pages of the web for the model: guarded connections, bounded answers, HTML as Markdown."""
