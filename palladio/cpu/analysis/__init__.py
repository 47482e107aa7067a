"""Work estimates of programs."""
