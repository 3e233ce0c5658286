"""Run folders: files, checkpoints, client states, and where they are."""
