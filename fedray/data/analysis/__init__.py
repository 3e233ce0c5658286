"""Analysis of federations: sizes, problems in the data, and differences between clients' recordings."""
