"""Oort's choice of clients."""
