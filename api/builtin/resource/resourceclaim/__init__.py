"""The rules of ResourceClaim and ResourceClaimTemplate."""
