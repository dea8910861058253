"""Evaluate a model on question files, and compare models question by question."""
