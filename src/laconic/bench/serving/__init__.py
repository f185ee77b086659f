"""How a server bears more than it can do."""
