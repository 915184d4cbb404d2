"""The commands beside `serve`: schema, proof, retention, archives, erasure, kubeconfigs, conversion."""
