//! Text that people write for the program, and its readers: the cluster file, the key file, addresses, sizes.
//!
//! ```text
//!   shoal-data/cluster.toml ─▶ cluster_file ─┬▶ address: shoal://HOST:PORT/NAME, a path on a mount, a folder
//!   shoal-data/key          ─▶ secret ───────┘
//!   shoal-data/key.server   ─▶ server_key: what only servers have
//!   shoal-data/key.admin    ─▶ admin_key: what administrators have
//!   shoal-data/store-N.toml ─▶ store_record: the store that was in the folder of server N
//! ```
//! **Invariant: a reader returns a value that has been checked, or an error that names the file, the place
//! and the remedy** (tests: `unknown_missing_and_wrong_settings_are_named_with_file_and_line`,
//! `contradictions_are_named_with_the_remedy_and_nothing_is_begun`). `fuzz/` feeds the readers arbitrary
//! text.

pub mod address;
pub mod admin_key;
pub mod bytes_size;
pub mod cluster_file;
pub mod numbers;
pub mod runtime;
pub mod secret;
pub mod server_key;
pub mod store_record;
