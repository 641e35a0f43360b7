"""Real models for the lessons: weights, tokenizers, and text to measure them on."""
