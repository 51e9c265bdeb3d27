"""How long should an answer be?"""
