"""Which rows are looked up how often, and where it is best to keep them."""
