"""The records that describe how kinds differ in a write: Strategy, and the context passed to its hooks."""
