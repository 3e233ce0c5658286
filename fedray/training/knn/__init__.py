"""A client's kNN memory for FedMem: building it, decoding with it, choosing its options on dev."""
