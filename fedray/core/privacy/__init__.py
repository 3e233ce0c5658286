"""Differential privacy for clients: bounds, noise and accounting. It knows nothing of actors."""
