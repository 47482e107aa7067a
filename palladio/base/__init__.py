"""Floor 0: source locations, errors and their rendering, environment knobs."""
