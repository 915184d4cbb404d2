"""gRPC: a client of services beside this server, such as key services and collectors of traces."""
