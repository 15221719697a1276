//! The simulated world, and the suite that it and the real one both pass. One program: a build of it is one
//! link.

mod real;
mod sim;
mod sim_disk;
mod sim_faults;
mod sim_machine;
mod suite;
