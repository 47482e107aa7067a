"""Floor 5: tracing Python functions to programs: traced values, references, control flow."""
