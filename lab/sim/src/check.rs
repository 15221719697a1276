//! The check at the end of a run. It compares the whole tree, as a fresh client sees it, with the rows of
//! the servers.

use shoal_client::{Client, Error};
use shoal_proto::{Attr, Dist, Handle, Kind, ServerId};
use shoal_server::keys::{self, Table};
use shoal_server::rows::{Dirent, Inode, RowValue};
use std::collections::{BTreeMap, BTreeSet};

/// The tree as it was found.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// Each name of each directory.
    pub entries: BTreeMap<(u64, Vec<u8>), u64>,
    /// Each object.
    pub objects: BTreeMap<u64, Attr>,
    /// Its violations.
    pub violations: Vec<String>,
}

/// Walk everything from the root.
///
/// # Errors
/// When a server does not answer.
pub async fn walk(client: &Client) -> Result<Tree, Error> {
    let mut tree = Tree::default();
    let root = client.getattr(Handle::ROOT).await?;
    tree.objects.insert(root.handle.0, root);
    let mut open = vec![Handle::ROOT];
    let mut names: BTreeMap<u64, u32> = BTreeMap::new();
    while let Some(dir) = open.pop() {
        let (mut listing, mut subdirs) = (client.opendir(dir), 0);
        while let Some(entry) = listing.next(true).await? {
            let place = (dir.0, entry.name.as_bytes().to_vec());
            tree.entries.insert(place, entry.handle.0);
            *names.entry(entry.handle.0).or_default() += 1;
            let Some(attr) = entry.attr else {
                tree.violations
                    .push(format!("{}/{} leads to {}, which is not there", dir, entry.name, entry.handle));
                continue;
            };
            if attr.kind == Kind::Directory {
                subdirs += 1;
                if attr.parent != dir {
                    tree.violations.push(format!("{} is in {dir} and says {}", entry.handle, attr.parent));
                }
                if !tree.objects.contains_key(&entry.handle.0) {
                    open.push(entry.handle);
                }
            }
            tree.objects.insert(entry.handle.0, attr);
        }
        let nlink = tree.objects.get(&dir.0).map_or(0, |attr| attr.nlink);
        if nlink != 2 + subdirs {
            tree.violations.push(format!("directory {dir} has {subdirs} subdirectories and {nlink} links"));
        }
    }
    for (handle, attr) in &tree.objects {
        let count = names.get(handle).copied().unwrap_or(0);
        let (words, right) = match attr.kind {
            Kind::Directory => ("directory", count == u32::from(attr.handle != Handle::ROOT)),
            _ => ("file", count == attr.nlink),
        };
        if !right {
            let handle = Handle(*handle);
            tree.violations.push(format!("{words} {handle} has {count} names and {} links", attr.nlink));
        }
    }
    Ok(tree)
}

/// All rows of a table of a server.
pub(crate) async fn rows(
    client: &Client,
    server: ServerId,
    table: Table,
) -> Result<Vec<(Vec<u8>, Vec<u8>)>, Error> {
    let (prefix, mut found) = (keys::table(table), Vec::new());
    let mut after = Vec::new();
    loop {
        let (rows, end) = client.rows(server, &prefix, &after, 1000).await?;
        after = rows.last().map_or(after, |row| row.key.to_vec());
        found.extend(rows.into_iter().map(|row| (row.key.to_vec(), row.value.to_vec())));
        if end {
            return Ok(found);
        }
    }
}

/// Hold the servers' rows against the tree, when everything is at rest and no client holds anything: nothing
/// is left over.
///
/// # Errors
/// When a server does not answer.
pub async fn leftovers(client: &Client, servers: u16, tree: &Tree) -> Result<Vec<String>, Error> {
    let mut wrong = Vec::new();
    let datafiles = |attr: &Attr| attr.layout.clone().map_or(Vec::new(), |layout| layout.datafiles.0);
    let striped: BTreeSet<u64> = tree.objects.values().flat_map(datafiles).map(|handle| handle.0).collect();
    for server in (0..servers).map(ServerId) {
        for (table, words) in [
            (Table::Tx, "a transaction"),
            (Table::Orphan, "an orphan"),
            (Table::Reap, "something to reap"),
            (Table::New, "something that may not have its place"),
            (Table::Unnamed, "a link of a name that was taken away"),
        ] {
            for (key, _) in rows(client, server, table).await? {
                wrong.push(format!("server {server} still holds {words}: {key:x?}"));
            }
        }
        for (key, _) in rows(client, server, Table::Inode).await? {
            if keys::parse_handle(&key).is_none_or(|handle| !tree.objects.contains_key(&handle.0)) {
                wrong.push(format!(
                    "server {server} holds an object without a name: {:?}",
                    keys::parse_handle(&key)
                ));
            }
        }
        for (key, _) in rows(client, server, Table::Datafile).await? {
            if keys::parse_handle(&key).is_none_or(|handle| !striped.contains(&handle.0)) {
                wrong.push(format!(
                    "server {server} holds a datafile of no file: {:?}",
                    keys::parse_handle(&key)
                ));
            }
        }
        for (key, _) in rows(client, server, Table::Entry).await? {
            let entry = keys::parse_entry(&key);
            if entry.is_none_or(|(dir, _, name)| !tree.entries.contains_key(&(dir.0, name.to_vec()))) {
                wrong.push(format!("server {server} holds an entry that no listing shows: {entry:?}"));
            }
        }
    }
    wrong.extend(directories(client, servers, tree).await?);
    wrong.extend(crate::pools::check(client, servers, tree).await?);
    Ok(wrong)
}

/// Each forked file has all its subfiles and nothing else, unless its removal was begun; subfiles are nowhere
/// else; and a fork is whole on the server of its subfile.
pub(crate) fn forked(tree: &Tree, unmade: &BTreeSet<u64>) -> Vec<String> {
    let mut wrong = Vec::new();
    let dist = |handle: u64| tree.objects.get(&handle).map(|attr| attr.template.dist);
    let mut subfiles: BTreeMap<u64, u16> = BTreeMap::new();
    for ((dir, name), handle) in &tree.entries {
        let (dir, leaf) = (Handle(*dir), String::from_utf8_lossy(name));
        let Some(found) = tree.objects.get(handle) else { continue };
        match dist(dir.0) {
            Some(Dist::Forked { subfiles: all }) => {
                *subfiles.entry(dir.0).or_default() += 1;
                let is_subfile = leaf.parse::<u16>().is_ok_and(|number| number < all);
                if !is_subfile || found.template.dist != Dist::Fork || found.kind != Kind::Directory {
                    wrong.push(format!("`{leaf}` in the forked file {dir} is none of its subfiles"));
                }
            }
            Some(Dist::Fork) => {
                let is_whole = found.handle.server() == dir.server() && found.layout.is_none();
                if !is_whole || found.template.dist != Dist::Fork || found.kind != Kind::File {
                    wrong.push(format!("`{leaf}` in the subfile {dir} is no fork, or is not whole there"));
                }
            }
            _ if found.template.dist == Dist::Fork => {
                wrong.push(format!("`{leaf}` in {dir} is a subfile or a fork, and not in its place"));
            }
            _ => {}
        }
    }
    for (handle, attr) in &tree.objects {
        let Dist::Forked { subfiles: all } = attr.template.dist else { continue };
        let there = subfiles.get(handle).copied().unwrap_or_default();
        if there != all && !unmade.contains(handle) {
            wrong.push(format!("forked file {} has {there} of its {all} subfiles", attr.handle));
        }
    }
    wrong
}

/// Every row of a directory, or of a shard of one, counts its own entries; each expected shard is there, and
/// holds only names of its range.
async fn directories(client: &Client, servers: u16, tree: &Tree) -> Result<Vec<String>, Error> {
    let mut wrong = Vec::new();
    for server in (0..servers).map(ServerId) {
        let (mut counted, mut told) = (BTreeMap::<u64, (u32, u32)>::new(), BTreeMap::new());
        for (key, value) in rows(client, server, Table::Entry).await? {
            let (Some((dir, place, name)), Ok(entry)) = (keys::parse_entry(&key), Dirent::from_row(&value))
            else {
                wrong.push(format!("server {server} holds an entry that cannot be read: {key:x?}"));
                continue;
            };
            let (entries, links) = counted.entry(dir.0).or_default();
            *entries += 1;
            *links += u32::from(entry.kind == Kind::Directory);
            let right = tree.objects.get(&dir.0).map(|dir| dir.shards.server_of(place));
            if right.is_some_and(|right| right.unwrap_or(dir.server()) != server) {
                let name = String::from_utf8_lossy(name);
                wrong.push(format!("server {server} holds {name} of {dir}, which is another shard's"));
            }
        }
        for (key, value) in rows(client, server, Table::Inode).await? {
            if let (Some(handle), Ok(inode)) = (keys::parse_handle(&key), Inode::from_row(&value))
                && inode.kind == Kind::Directory
            {
                told.insert(handle.0, (inode.entries, inode.nlink.saturating_sub(2)));
            }
        }
        for (&handle, attr) in tree.objects.iter().filter(|(_, attr)| attr.kind == Kind::Directory) {
            let has_shard = attr.shards.servers().contains(&server);
            if (attr.handle.server() == server || has_shard) != told.contains_key(&handle) {
                wrong.push(format!("server {server}: the shard of {} is missing, or too many", attr.handle));
            }
        }
        for (handle, says) in told {
            let there = counted.get(&handle).copied().unwrap_or_default();
            if says != there {
                let handle = Handle(handle);
                wrong.push(format!(
                    "server {server}: directory {handle} counts (entries, subdirectories) {says:?}, there are {there:?}"
                ));
            }
        }
    }
    Ok(wrong)
}
