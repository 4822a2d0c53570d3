"""Tasks and runs: simulated schedules, moved clocks, transcripts."""
