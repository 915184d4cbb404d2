"""The listening side of a server: its addresses, and the settings of TLS and HTTP."""
