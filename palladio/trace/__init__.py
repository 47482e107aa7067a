"""Floor 5: from Python functions to programs: traced values, references, control flow."""
