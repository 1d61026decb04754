"""How long does a gateway take to start, and what does that cost?"""
