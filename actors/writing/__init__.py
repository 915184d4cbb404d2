"""Every change of an object: preparation by rules and admission, key locks, and the commit through a resource actor."""
