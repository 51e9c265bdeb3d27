"""How does training stay stable on old data?"""
