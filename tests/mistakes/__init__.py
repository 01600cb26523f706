"""Mistakes that newcomers make, and what a good answer to each of them says."""
