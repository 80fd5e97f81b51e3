"""The site of the documentation: `python -m website` builds it, strictly, and checks what came out."""
