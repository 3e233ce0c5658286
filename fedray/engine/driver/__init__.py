"""A run from outside: the user's process, the driver actor, and the loop over its rounds."""
