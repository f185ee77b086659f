"""The accuracy watch: scores against the exact model, inputs against a reference, outcomes against both."""
