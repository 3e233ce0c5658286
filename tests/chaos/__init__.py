"""Runs of the toy, disturbed at random moments in random places until they end: all must have the undisturbed bits."""
