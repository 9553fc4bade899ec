//! Small frames in common files: how little they take, what damage costs, and how room comes back.
