//! Unspool's frame format and codecs.
