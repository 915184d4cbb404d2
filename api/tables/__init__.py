"""Tables: the rows and columns that `kubectl get` prints, and the metadata-only forms of objects."""
