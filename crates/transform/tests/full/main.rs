//! Writes and opens that fail, because a limit of the process makes them fail: the tests have a process of
//! their own, and run one at a time.

mod composed;
mod containers;
mod limits;
#[path = "../all/scene.rs"]
#[allow(dead_code, reason = "the scene of all tests of the crate, of which these need a part")]
mod scene;
