"""One round: the cohort, its lanes, the broadcast, and the mean that the server takes."""
