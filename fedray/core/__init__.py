"""Types, metrics, sums, strategies, schedules and optimisers: what all other rooms build on."""
