//! Valid inputs in the formats that people write: cluster files, key files, addresses, sizes.

fn bytes<const N: usize>(texts: [&str; N]) -> Vec<Vec<u8>> {
    texts.map(|text| text.as_bytes().to_vec()).to_vec()
}

pub(crate) fn cluster_files() -> Vec<Vec<u8>> {
    let small = r#"key = "key"
[[server]]
listen = ["tcp:127.0.0.1:7441", "unix:/run/shoal", "local:a"]
folder = "s0"
[[collection]]
name = "demo"
id = "000102030405060708090a0b0c0d0e0f"
number = 1
"#;
    let whole = r#"# A comment.
key = "/etc/shoal/key"
mac = "head"

[[server]]
listen = ["tcp:10.0.0.1:7441"]
roles = ["metadata", "data"]
folder = "/srv/shoal/0"

[[server]]
listen = ["tcp:[::1]:7442"]
roles = ["data"]
folder = "/srv/shoal/1"

[[collection]]
name = "demo"
id = "000102030405060708090a0b0c0d0e0f"
number = 1
module = "disk"
metadata_sync = "fsync"
data_sync = "reply"
cache = "1.5G"
distribution = "basic"
strip = "64k"
width = 2

[[collection]]
name = "scratch-2.x"
id = "ff0102030405060708090a0b0c0d0e0f"
number = 2
module = "memory"
"#;
    bytes([small, whole])
}

pub(crate) fn key_files() -> Vec<Vec<u8>> {
    let text = r#"key = "71a683b2fd98e396229a9d371f99e551c54e886aeb3b7d2e5bd1f8e0867ce9fc"
[[file_system]]
name = "demo"
id = "1e9d8a4d6726c0de2eef3c793ec9a42b"
collection = 1
"#;
    let named = format!("id = \"00a3000000000001\"\nname = \"lab\"\nread_only = true\n{text}");
    bytes([text, named.as_str()])
}

pub(crate) fn server_key_files() -> Vec<Vec<u8>> {
    let text = r#"server = "71a683b2fd98e396229a9d371f99e551c54e886aeb3b7d2e5bd1f8e0867ce9fc"
place = "0ca683b2fd98e396229a9d371f99e551c54e886aeb3b7d2e5bd1f8e0867ce9fc"
"#;
    bytes([text])
}

pub(crate) fn addresses() -> Vec<Vec<u8>> {
    bytes(["tcp:127.0.0.1:7441", "[::1]:7441", "unix:/run/shoal.socket", "local:name"])
}

pub(crate) fn sizes() -> Vec<Vec<u8>> {
    bytes(["4096", "64k", "1.5GiB", "16777215T", "0"])
}
