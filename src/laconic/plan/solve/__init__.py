"""Places for all tables that make a step as short as it can be."""
