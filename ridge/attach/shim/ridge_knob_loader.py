"""Knobs of the loaders that feed steps."""
KNOBS = []
