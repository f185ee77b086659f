"""What precision each table and layer of a trained model gets: search, debugger, refresh."""
