"""Floor 9: the calls a user makes: `pallas_call`, `jit`, calls of concurrent programs, cost estimates."""
