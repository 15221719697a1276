//! The algebra against a naive expansion. All tests are one program, so that a build links once.

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
