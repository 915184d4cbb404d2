"""Simulated nodes: Stages in kwok's format with their templates and queries, and the choice of a node for a pod."""
