"""``laconic tune``: measure what bounds save and harm, and choose them."""
