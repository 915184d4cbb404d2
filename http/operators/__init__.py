"""Pages for operators: /statusz, /flagz, /configz, /metrics/slis and /debug/pprof/profile."""
