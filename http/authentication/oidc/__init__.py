"""Tokens of OpenID Connect providers: who issued them, whether they are genuine, and which user their claims make.

configuration.py says which issuers are believed, and how; validation.py judges that and compiles its expressions
(expressions.py); provider.py fetches an issuer's keys; web_keys.py and tokens.py verify; distributed.py asks where
groups are kept elsewhere; claims.py makes users; authenticator.py puts them together and follows the file.
"""
