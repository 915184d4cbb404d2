"""Values with a syntax: names, durations, quantities, certificates; and the cache of parsed texts."""
