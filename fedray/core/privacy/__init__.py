"""Differential privacy for clients: bounds, noise and its account. It knows nothing of actors."""
