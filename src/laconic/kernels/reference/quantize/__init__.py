"""From values to codes within a bound."""
