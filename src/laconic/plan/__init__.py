"""Where tables and rows should live, and what that will take."""
