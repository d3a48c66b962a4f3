"""Operations on recipes and runs."""
