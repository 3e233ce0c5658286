"""Analysis of federations: sizes, problems of the data, and differences between clients' recordings."""
