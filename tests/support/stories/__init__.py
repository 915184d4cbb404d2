"""Histories of clusters for tests: what people and controllers did, as servers with controllers would record it."""
