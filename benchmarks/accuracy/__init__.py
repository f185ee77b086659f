"""What compression costs the model, on paired runs."""
