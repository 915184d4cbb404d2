"""Authentication by tokens of OpenID Connect providers.

configuration.py: the records of the configuration file
validation.py: its rules; compiles its expressions (expressions.py, names.py)
provider.py: discovery of a provider, and its keys
web_keys.py, tokens.py: verification of tokens
distributed.py: groups that another server holds
claims.py: the user of a token
authenticator.py: the authenticator of all issuers, and the reload of the file
"""
