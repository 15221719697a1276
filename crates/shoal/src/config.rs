//! What people write for the program, and how it is read: the cluster file, the key file, addresses, sizes. A library of its
//! own so that `fuzz/` can feed its readers what nobody would write.

pub mod address;
pub mod bytes_size;
pub mod cluster_file;
pub mod secret;
pub mod store_record;
