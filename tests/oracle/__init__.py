"""A second model of what placements send, for any system; the planner's is tested against it."""
