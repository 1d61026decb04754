"""What does it cost to decide: which worker, and who is next?"""
