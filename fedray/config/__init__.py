"""Configurations: YAML and overrides, checked against frozen dataclasses."""
