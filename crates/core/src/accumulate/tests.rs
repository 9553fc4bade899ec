//! Small worlds that can be worked out by hand, and every schedule of random ones.

