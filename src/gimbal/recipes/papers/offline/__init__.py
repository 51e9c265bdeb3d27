"""What can a policy learn from recorded episodes only?"""
