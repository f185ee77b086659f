"""How often rows are looked up: counted in one pass, and kept in a file."""
