"""The command line, settings, certificates, embedded Postgres and server assembly. No other folder imports this one."""
