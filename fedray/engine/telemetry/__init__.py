"""What a run reports while it is active: progress, events, gauges, times."""
