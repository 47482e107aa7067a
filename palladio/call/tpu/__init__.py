"""The TPU dialect's own calls: array functions, the choice of the simulator, and the names that are refused."""
