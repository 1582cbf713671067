"""The log: what was acknowledged and has not settled. `engine` is the seam; `embedded` is the engine of one machine."""
