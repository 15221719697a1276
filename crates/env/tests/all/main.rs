//! The simulated world, and the suite that it and the real one both pass. All tests are one program, so that
//! a build links once.

mod ended;
mod real;
mod shared;
mod sim;
mod sim_disk;
mod sim_faults;
mod sim_machine;
mod suite;
