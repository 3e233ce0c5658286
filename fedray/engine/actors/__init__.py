"""Client actors, the pool that leases them to jobs, and their deaths."""
