"""Import into the history, export from it, deletion."""
