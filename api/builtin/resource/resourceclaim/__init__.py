"""Rules of ResourceClaim and ResourceClaimTemplate."""
