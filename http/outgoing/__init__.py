"""HTTPS requests of this server to others, and the judge of every address that a client can choose."""
