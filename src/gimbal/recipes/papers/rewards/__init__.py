"""What should be rewarded, and how are several rewards combined?"""
