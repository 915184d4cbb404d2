"""What a user may do. Until roles and bindings decide, system:masters may do everything and all others nothing."""
