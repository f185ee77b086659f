"""Models in low precision: ``formats`` that the server reads, and the ``search`` that chooses them."""
