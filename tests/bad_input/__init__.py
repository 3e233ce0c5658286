"""Bad input of every kind and what the user reads. `python -m tests.bad_input` writes docs/bad-input.md."""
