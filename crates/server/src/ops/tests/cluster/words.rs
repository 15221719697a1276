//! The calls of a client, for these tests. Each call sends one operation to the right server, and decodes
//! the answer. The file also checks the invariants of directories' shards after any operation.

use super::{Cluster, OWNER, name, scanned};
use crate::meta::keys;
use crate::meta::rows::{Dirent, Inode, RowValue};
use crate::request::ctx::Stopped;
use bytes::Bytes;
use shoal_proto::{Answer, Attr, Entry, Handle, Held, Kind, Op, Rights, ServerId, SetAttr, Shards, Status};

impl Cluster {
    /// Run one operation: where it is sent on to a shard, there.
    pub fn op(&self, server: ServerId, op: Op) -> Result<Answer, Status> {
        match self.group(server, std::slice::from_ref(&op)) {
            Ok(mut answers) => Ok(answers.remove(0)),
            Err(Stopped::Status(status)) => Err(status),
            Err(Stopped::Split(split)) => {
                let (_, name) = op.entry().expect("it is about an entry");
                let place = self.server(server).identity.place_of(name.as_bytes());
                let shard = split.1.server_of(place).unwrap();
                assert_ne!(shard, server, "nobody is sent on to where he is");
                self.op(shard, op)
            }
            Err(halt) => panic!("{halt:?}"),
        }
    }

    /// Split a directory.
    pub fn split(&self, dir: Handle) -> Shards {
        match self.op(dir.server(), Op::Split { dir, entries: u32::MAX / 2 }) {
            Ok(Answer::Split { shards, .. }) => shards,
            other => panic!("{other:?}"),
        }
    }

    /// The rows of one server that begin so.
    pub fn rows_of(&self, server: ServerId, prefix: &[u8]) -> Vec<(Bytes, Bytes)> {
        scanned(&self.server(server).store, prefix)
    }

    fn made(&self, dir: Handle, op: Op) -> Result<Attr, Status> {
        match self.op(dir.server(), op)? {
            Answer::Made { attr, .. } => Ok(attr),
            other => panic!("{other:?}"),
        }
    }

    pub fn create(&self, dir: Handle, file: &str) -> Result<Attr, Status> {
        let (name, exclusive) = (name(file), true);
        let open = Rights::READ | Rights::WRITE;
        self.made(dir, Op::Create { dir, name, owner: OWNER, exclusive, open, template: None })
    }

    pub fn mkdir(&self, dir: Handle, subdir: &str) -> Result<Attr, Status> {
        self.made(dir, Op::Mkdir { dir, name: name(subdir), owner: OWNER })
    }

    /// A directory on a given server.
    pub fn mkdir_on(&self, server: u16, dir: Handle) -> (String, Attr) {
        let text = format!("dir{}", self.tick().0);
        self.place.set(Some(ServerId(server)));
        let made = self.mkdir(dir, &text).unwrap();
        self.place.set(None);
        (text, made)
    }

    pub fn symlink(&self, dir: Handle, link: &str, target: &[u8]) -> Result<Attr, Status> {
        self.made(dir, Op::Symlink { dir, name: name(link), owner: OWNER, target: target.into() })
    }

    pub fn mknod(&self, dir: Handle, node: &str, kind: Kind, rdev: u64) -> Result<Attr, Status> {
        self.made(dir, Op::Mknod { dir, name: name(node), owner: OWNER, kind, rdev })
    }

    pub fn link(&self, object: Handle, dir: Handle, to: &str) -> Result<Attr, Status> {
        match self.op(dir.server(), Op::Link { object, dir, name: name(to) })? {
            Answer::Attr { attr, .. } => Ok(attr),
            other => panic!("{other:?}"),
        }
    }

    pub fn unlink(&self, dir: Handle, file: &str) -> Result<Answer, Status> {
        self.unlink_held(dir, file, Held::default())
    }

    pub fn unlink_held(&self, dir: Handle, file: &str, held: Held) -> Result<Answer, Status> {
        self.op(dir.server(), Op::Unlink { dir, name: name(file), held })
    }

    pub fn rmdir(&self, dir: Handle, subdir: &str) -> Result<Answer, Status> {
        self.op(dir.server(), Op::Rmdir { dir, name: name(subdir) })
    }

    pub fn rename(&self, from: (Handle, &str), to: (Handle, &str)) -> Result<Answer, Status> {
        self.rename_with(from, to, false, false, Held::default())
    }

    pub fn rename_with(
        &self,
        from: (Handle, &str),
        to: (Handle, &str),
        no_replace: bool,
        exchange: bool,
        held: Held,
    ) -> Result<Answer, Status> {
        let (from_dir, from_name, to_dir, to_name) = (from.0, name(from.1), to.0, name(to.1));
        let op = Op::Rename { from_dir, from_name, to_dir, to_name, no_replace, exchange, held };
        self.op(to_dir.server(), op)
    }

    /// Attributes, at the moment of the last run; of a split directory merged as clients do.
    pub fn attr(&self, object: Handle) -> Result<Attr, Status> {
        let home = self.attr_at(object.server(), object)?;
        let others = home.shards.servers().iter().filter(|&&server| server != object.server());
        let others: Vec<Attr> = others.map(|&server| self.attr_at(server, object).unwrap()).collect();
        Ok(others.into_iter().fold(home, |attr, other| Attr {
            nlink: attr.nlink + other.nlink - 2,
            mtime: attr.mtime.max(other.mtime),
            ctime: attr.ctime.max(other.ctime),
            ..attr
        }))
    }

    /// Attributes as one server has them.
    pub fn attr_at(&self, server: ServerId, object: Handle) -> Result<Attr, Status> {
        match self.peek(server, &Op::Getattr { object }) {
            Ok(Answer::Attr { attr, .. }) => Ok(attr),
            Err(Stopped::Status(status)) => Err(status),
            other => panic!("{other:?}"),
        }
    }

    /// Every row of a directory or shard counts its own entries, and all of them are in its range.
    pub fn check_shards(&self) {
        for server in &self.servers {
            let id = server.identity.id;
            for (key, row) in self.rows_of(id, &keys::table(keys::Table::Inode)) {
                let (dir, inode) = (keys::parse_handle(&key).unwrap(), Inode::from_row(&row).unwrap());
                if inode.kind != Kind::Directory {
                    assert_eq!(dir.server(), id);
                    continue;
                }
                let entries = self.rows_of(id, &keys::entries(dir));
                let is_dir = |row: &Bytes| Dirent::from_row(row).unwrap().kind == Kind::Directory;
                let subdirs = entries.iter().filter(|(_, row)| is_dir(row)).count();
                let counted = (entries.len() as u32, 2 + subdirs as u32);
                assert_eq!((inode.entries, inode.nlink), counted, "{dir} on server {id}");
                if !inode.shards.is_split() {
                    assert_eq!(dir.server(), id);
                    continue;
                }
                for (key, _) in entries {
                    let (_, place, _) = keys::parse_entry(&key).unwrap();
                    assert_eq!(inode.shards.server_of(place), Some(id), "{dir}: an entry out of its range");
                }
            }
        }
    }

    pub fn setattr(&self, object: Handle, set: SetAttr) -> Result<Attr, Status> {
        match self.op(object.server(), Op::Setattr { object, set })? {
            Answer::Attr { attr, .. } => Ok(attr),
            other => panic!("{other:?}"),
        }
    }

    /// The object that a name leads to.
    pub fn find(&self, dir: Handle, entry: &str) -> Result<Handle, Status> {
        let path = vec![name(entry)].into();
        match self.op(dir.server(), Op::Lookup { dir, path })? {
            Answer::Looked { handle, .. } => Ok(handle),
            other => panic!("{other:?}"),
        }
    }

    /// All entries, by name.
    pub fn list(&self, dir: Handle) -> Vec<Entry> {
        let (mut all, mut after) = (Vec::new(), None);
        let shards = self.attr(dir).unwrap().shards;
        let mut left = match shards.servers() {
            [] => vec![dir.server()],
            servers => servers.iter().rev().copied().collect(),
        };
        let in_shard = shards.is_split();
        while let Some(&server) = left.last() {
            let op =
                Op::Readdir { dir, after: after.clone(), bytes_max: 2048, plus: true, data_max: 0, in_shard };
            let Answer::Entries { entries, end, .. } = self.op(server, op).unwrap() else { panic!() };
            if let Some(last) = entries.last() {
                let name = last.name.as_bytes().into();
                after = Some(shoal_proto::Place { hash: last.place, name });
            }
            all.extend(entries.0);
            if end {
                left.pop();
            }
        }
        assert!(
            all.is_sorted_by_key(|entry| entry.place),
            "a listing is in the order of places, over shards too"
        );
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// Write through the group that opens.
    pub fn write(&self, file: Handle, data: &'static [u8]) {
        let open = Op::Open { object: file, rights: Rights::WRITE };
        let pattern = shoal_pattern::Pattern::contiguous(0, data.len() as u64).unwrap();
        let transfer = shoal_proto::Transfer {
            stream: Handle::CURRENT,
            generation: shoal_proto::Generation(0),
            capability: None,
            window_from: 0,
            window_len: data.len() as u64,
            pattern,
            share: shoal_proto::Share::WHOLE,
        };
        let write = Op::Write { transfer, len: data.len() as u32 };
        self.group_with(file.server(), &[open, write], Bytes::from_static(data)).unwrap();
    }
}
