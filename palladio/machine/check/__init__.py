"""The checker: shadow memory, exact regions, happens-before edges, and the findings that come of them."""
