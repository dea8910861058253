"""The output of a run: console, folder, HTML report and trackers; and how to resume a run."""
