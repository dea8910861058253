"""What a run shows and writes: the console, the run's folder and the HTML report."""
