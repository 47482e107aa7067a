"""Floor 9: user-facing calls: `pallas_call`, `jit`, calls of concurrent programs, cost estimates."""
