"""Functions on several simulated devices."""
