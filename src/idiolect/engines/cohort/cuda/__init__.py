"""The cohort engine on a GPU: stages as compiled steps, replayed as CUDA graphs on lanes of clients."""
