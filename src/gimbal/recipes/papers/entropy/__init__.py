"""How does the policy keep enough entropy?"""
