"""Feed damaged files to every reader until the time is up."""
