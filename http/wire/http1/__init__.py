"""HTTP/1.1: parsing of requests and framing of answers."""
