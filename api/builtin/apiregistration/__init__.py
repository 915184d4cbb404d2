"""APIServices, through which other servers' groups are reached."""
