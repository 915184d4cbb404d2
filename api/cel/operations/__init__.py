"""Operations on CEL values: arithmetic, comparison, equality, conversion, patterns and times."""
