"""Proof that history was not edited: row digests, the hash chain, checkpoints and the rules of erasures."""
