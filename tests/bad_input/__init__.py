"""Bad input of every kind: what a user reads. `python -m tests.bad_input` writes docs/bad-input.md."""
