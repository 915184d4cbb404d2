"""Support for tests of the documentation: the parts of its pages, sessions that run them, and comparison of outputs."""
