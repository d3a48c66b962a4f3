"""What a recipe will need: memory, time, and what its schedules come to. Imports without torch."""
