"""What a client actor can be asked to do, as jobs and plain functions without Ray."""
