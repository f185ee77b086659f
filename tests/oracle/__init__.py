"""A second model of what placements send and take, for any system: what the one that plans is tested against."""
