"""How remote faults are met: the retry policy, the operation gate with its pacing, the circuit breaker."""
