"""What should be paid, and how do several rewards go together?"""
