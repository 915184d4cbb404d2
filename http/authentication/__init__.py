"""Who a request comes from: a chain of authenticators, the first that recognises its credential answers.

A presented credential that is wrong is 401, never anonymous. No authenticator logs or keeps what it was shown.
"""
