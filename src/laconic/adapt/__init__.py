"""What decides how much to compress: settings, policies, guard and economy, from evidence that others hand in."""
