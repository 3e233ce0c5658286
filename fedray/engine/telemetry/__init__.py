"""What a run tells while it plays: progress, events, gauges, times."""
