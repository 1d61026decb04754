"""What does the gateway cost a single worker's callers, and what does it win them?"""
