"""Toy runs with faults at random moments in random places: each must end with the bits of the undisturbed run."""
