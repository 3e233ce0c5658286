"""Data: manifests, features, text, federations, their analysis, and corpora."""
