"""Tools for developing this project: replay of recorded conversations, and a server process for tools and tests."""
