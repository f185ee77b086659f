"""What bytes and work take: measured constants in, seconds out."""
