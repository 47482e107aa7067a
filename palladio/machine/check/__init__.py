"""The checker: shadow memory, exact regions, happens-before edges, and findings."""
