"""Where rows should live: how often they are looked up, what that costs on a cluster, and the plan that costs least."""
