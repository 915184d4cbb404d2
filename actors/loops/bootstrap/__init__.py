"""Control loops for objects that every cluster has: namespaces, roles, APIServices and ConfigMaps of the server."""
