//! The algebra against a naive expansion. One program: a build of it is one link.

mod arrays;
mod codec;
mod compressor;
mod deal;
mod forms;
mod large;
mod laws;
mod memory;
mod model;
mod order;
mod projection;
