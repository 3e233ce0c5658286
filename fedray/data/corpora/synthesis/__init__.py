"""Seeded synthetic speech: what is said (sentences), by whom (speakers), where (acoustics), on file (recording)."""
