"""In place of the package ridge-engine, for tests of the knobs that use it."""
