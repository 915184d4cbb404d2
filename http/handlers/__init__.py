"""The handlers: what is answered at each path, once the filters let a request through."""
