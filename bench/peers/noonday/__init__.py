"""Noonday itself, through the same contract as its peers."""
