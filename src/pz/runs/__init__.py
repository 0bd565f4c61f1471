"""Run directory, lock, run.json, run_results.json, history, retention."""
