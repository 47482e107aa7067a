"""Floor 9: the calls a user makes: block and grid specifications, `pallas_call`, `jit`, cost estimates."""
