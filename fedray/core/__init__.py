"""Types, metrics, sums, strategies, schedules and optimisers: what all other packages build on."""
