"""kvbook: the code of the book "How many users fit?", on the KV cache of LLM servers."""

__version__ = "0.1.0"
