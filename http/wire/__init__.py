"""The wire: sockets, TLS, connections and HTTP framing; bytes become a Request, and a Response becomes bytes."""
