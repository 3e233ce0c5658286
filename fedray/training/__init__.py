"""Tasks, local training, pseudo-labels and decoding."""
