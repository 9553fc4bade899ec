"""Saves the inner part of a padded field, a view with gaps, and reads it into other layouts.

Nothing is made contiguous first: the spool copies between any two layouts of the same shape. With
PyTorch installed, what NumPy saved is also restored into a tensor.
"""

import numpy as np
import unspool

HALO = 4


def inner(padded):
    """The field without its halo: rows with gaps between them, no copy."""
    return padded[HALO:-HALO, HALO:-HALO]


def main():
    """Saves one view and restores it three times."""
    padded = np.random.default_rng(0).normal(size=(208, 108)).astype(np.float32)
    with unspool.Spool(host_memory="4MiB") as spool:
        spool.save(0, wave=inner(padded))

        contiguous = np.empty((200, 100), np.float32)
        spool.restore(0, wave=contiguous)

        elsewhere = np.zeros_like(padded)
        spool.restore(0, wave=inner(elsewhere))

        columns_first = np.empty((200, 100), np.float32, order="F")
        spool.restore(0, wave=columns_first)

        print(spool.regions(0))
        results = [contiguous, inner(elsewhere), columns_first]
        try:
            import torch
        except ImportError:
            pass
        else:
            tensor = torch.empty((100, 200), dtype=torch.float32).T
            spool.restore(0, wave=tensor)
            results.append(tensor.numpy())
    return inner(padded), results


if __name__ == "__main__":
    main()
