"""Connections of clients to nodes, pods and services through this server: dialing, and a streaming reverse proxy."""
