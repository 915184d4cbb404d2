"""Pages for operators: /statusz, /flagz, /metrics/slis and /debug/pprof/profile."""
