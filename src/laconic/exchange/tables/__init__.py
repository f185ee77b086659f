"""Where rows are, who has copies of them, and what updates them."""
