"""Time against memory of loops and models by several ways, drawn from what benchmarks wrote."""
