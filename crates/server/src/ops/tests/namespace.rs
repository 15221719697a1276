//! Tests that make, find and remove names.

use super::cluster::{ALL, Cluster, OWNER, name};
use crate::meta::keys::Table;
use shoal_proto::{
    Answer, ClientId, Handle, Held, Kind, Op, Rights, Roles, ServerId, SetAttr, Status, limits,
};

const ROOT: Handle = Handle::ROOT;

fn looked(cluster: &Cluster, dir: Handle, path: &[&str]) -> Result<(u16, Handle, Kind, bool), Status> {
    let path = path.iter().map(|text| name(text)).collect::<Vec<_>>().into();
    match cluster.op(dir.server(), Op::Lookup { dir, path })? {
        Answer::Looked { resolved, handle, kind, attr } => Ok((resolved, handle, kind, attr.is_some())),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_created_file_is_found_with_its_attributes() {
    let cluster = Cluster::new(&[ALL]);
    let file = cluster.create(ROOT, "a").unwrap();
    assert_eq!((file.kind, file.mode, file.uid, file.gid, file.nlink), (Kind::File, 0o755, 1000, 100, 1));
    assert_eq!((file.size, file.generation.0), (0, 1));
    assert_eq!(cluster.find(ROOT, "a"), Ok(file.handle));
    assert_eq!(cluster.attr(file.handle), Ok(file));
    assert_eq!(cluster.find(ROOT, "b"), Err(Status::NotFound));
}

#[test]
fn creating_and_writing_is_one_group() {
    let cluster = Cluster::new(&[ALL]);
    let file = cluster.create(ROOT, "a").unwrap();
    cluster.write(file.handle, b"hello");
    let attr = cluster.attr(file.handle).unwrap();
    assert_eq!((attr.size, attr.mtime, attr.ctime), (5, cluster.now(), cluster.now()));
}

#[test]
fn a_create_needs_one_load_when_nothing_is_in_memory() {
    let cluster = Cluster::new(&[ALL]);
    cluster.create(ROOT, "a").unwrap();
    assert_eq!(cluster.loads.get(), 1);
}

#[test]
fn a_parent_has_the_time_of_the_newest_entry_and_counts_its_subdirectories() {
    let cluster = Cluster::new(&[ALL]);
    let times = |cluster: &Cluster| {
        let now = cluster.now();
        let root = cluster.attr(ROOT).unwrap();
        assert_eq!((root.mtime, root.ctime), (now, now));
        root.nlink
    };
    cluster.create(ROOT, "file").unwrap();
    assert_eq!(times(&cluster), 2);
    cluster.mkdir(ROOT, "dir").unwrap();
    assert_eq!(times(&cluster), 3);
    cluster.symlink(ROOT, "link", b"file").unwrap();
    assert_eq!(times(&cluster), 3);
    cluster.rmdir(ROOT, "dir").unwrap();
    assert_eq!(times(&cluster), 2);
    cluster.unlink(ROOT, "file").unwrap();
    assert_eq!(times(&cluster), 2);
}

#[test]
fn what_exists_is_not_made_again() {
    let cluster = Cluster::new(&[ALL]);
    cluster.create(ROOT, "a").unwrap();
    assert_eq!(cluster.create(ROOT, "a"), Err(Status::Exists));
    assert_eq!(cluster.mkdir(ROOT, "a"), Err(Status::Exists));
    assert_eq!(cluster.symlink(ROOT, "a", b"b"), Err(Status::Exists));
    assert_eq!(cluster.mknod(ROOT, "a", Kind::Fifo, 0), Err(Status::Exists));
}

#[test]
fn a_create_that_is_not_exclusive_opens_what_is_there() {
    let cluster = Cluster::new(&[ALL, ALL]);
    let open = |dir: Handle, file: &str| {
        let open = Rights::WRITE;
        let op = Op::Create { dir, name: name(file), owner: OWNER, exclusive: false, open, template: None };
        cluster.op(dir.server(), op)
    };
    let file = cluster.create(ROOT, "a").unwrap();
    let Answer::Made { attr, capability, created, .. } = open(ROOT, "a").unwrap() else { panic!() };
    assert_eq!((attr, created), (file.clone(), false));
    let identity = &cluster.servers[1].identity;
    assert!(capability.unwrap().allows(
        &identity.keys.server,
        identity.collection,
        file.handle,
        Rights::WRITE,
        cluster.now()
    ));
    // Where the object is on another server than its name, the answer says where: the client opens it there.
    let (_, dir) = cluster.mkdir_on(1, ROOT);
    cluster.link(file.handle, dir.handle, "b").unwrap();
    let elsewhere = Answer::Looked { resolved: 1, handle: file.handle, kind: Kind::File, attr: None };
    assert_eq!(open(dir.handle, "b"), Ok(elsewhere));
    cluster.mkdir(ROOT, "dir").unwrap();
    assert_eq!(open(ROOT, "dir"), Err(Status::IsDirectory));
    cluster.symlink(ROOT, "link", b"a").unwrap();
    let Answer::Made { attr, capability: None, created: false, .. } = open(ROOT, "link").unwrap() else {
        panic!()
    };
    assert_eq!(attr.kind, Kind::Symlink);
}

#[test]
fn new_objects_take_the_group_of_a_set_group_id_directory() {
    let cluster = Cluster::new(&[ALL, ALL]);
    let (_, dir) = cluster.mkdir_on(1, ROOT);
    let set = SetAttr { mode: Some(0o2775), gid: Some(7), ..SetAttr::default() };
    cluster.setattr(dir.handle, set).unwrap();
    let file = cluster.create(dir.handle, "file").unwrap();
    assert_eq!((file.gid, file.mode), (7, 0o755));
    for server in 0..2 {
        let (_, sub) = cluster.mkdir_on(server, dir.handle);
        assert_eq!((sub.gid, sub.mode, sub.parent), (7, 0o2755, dir.handle));
        assert_eq!(cluster.attr(sub.handle), Ok(sub));
    }
    assert_eq!(cluster.symlink(dir.handle, "link", b"x").unwrap().gid, 7);
}

#[test]
fn directories_lie_evenly_over_the_metadata_servers_and_files_beside_their_names() {
    let cluster = Cluster::new(&[ALL, Roles::DATA, ALL]);
    let mut counts = [0; 3];
    for n in 0..60 {
        let dir = cluster.mkdir(ROOT, &format!("d{n}")).unwrap();
        counts[usize::from(dir.handle.server().0)] += 1;
        let file = cluster.create(dir.handle, "file").unwrap();
        assert_eq!(file.handle.server(), dir.handle.server());
    }
    assert_eq!(counts, [30, 0, 30]);
}

#[test]
fn a_walk_ends_where_this_server_cannot_go_on() {
    let cluster = Cluster::new(&[ALL, ALL]);
    let (here, a) = cluster.mkdir_on(0, ROOT);
    let (there, b) = cluster.mkdir_on(1, a.handle);
    let (here, there) = (here.as_str(), there.as_str());
    assert_eq!(looked(&cluster, ROOT, &[]), Ok((0, ROOT, Kind::Directory, true)));
    assert_eq!(looked(&cluster, ROOT, &[here]), Ok((1, a.handle, Kind::Directory, true)));
    assert_eq!(looked(&cluster, ROOT, &[here, there, "x"]), Ok((2, b.handle, Kind::Directory, false)));
    assert_eq!(looked(&cluster, ROOT, &[here, there]), Ok((2, b.handle, Kind::Directory, false)));
    let link = cluster.symlink(a.handle, "link", b"elsewhere").unwrap().handle;
    assert_eq!(looked(&cluster, ROOT, &[here, "link", "x"]), Ok((2, link, Kind::Symlink, true)));
    assert_eq!(looked(&cluster, ROOT, &[here, "link"]), Ok((2, link, Kind::Symlink, true)));
    cluster.create(a.handle, "file").unwrap();
    assert_eq!(looked(&cluster, ROOT, &[here, "file", "x"]), Err(Status::NotDirectory));
    assert_eq!(looked(&cluster, ROOT, &[here, "none", "x"]), Err(Status::NotFound));
    assert_eq!(looked(&cluster, link, &["x"]), Err(Status::NotDirectory));
}

#[test]
fn a_link_keeps_its_target_as_it_was_given() {
    let cluster = Cluster::new(&[ALL]);
    let target = [&b"/../ \xff//"[..], &[b'x'; 4000]].concat();
    let link = cluster.symlink(ROOT, "link", &target).unwrap();
    assert_eq!((link.size, link.mode), (target.len() as u64, 0o777));
    let read = cluster.op(ServerId(0), Op::Readlink { object: link.handle });
    assert_eq!(read, Ok(Answer::Bytes { bytes: target.as_slice().into() }));
    assert_eq!(cluster.op(ServerId(0), Op::Readlink { object: ROOT }), Err(Status::Invalid));
    assert_eq!(cluster.symlink(ROOT, "empty", b""), Err(Status::NotFound));
}

#[test]
fn special_files_keep_kind_and_device_number() {
    let cluster = Cluster::new(&[ALL]);
    for (file, kind, rdev) in [
        ("f", Kind::Fifo, 0),
        ("s", Kind::Socket, 0),
        ("c", Kind::CharDevice, 259),
        ("b", Kind::BlockDevice, 7),
    ] {
        let made = cluster.mknod(ROOT, file, kind, if rdev == 0 { 5 } else { rdev }).unwrap();
        assert_eq!((made.kind, made.rdev, made.size), (kind, rdev, 0));
    }
    assert_eq!(cluster.mknod(ROOT, "plain", Kind::File, 0).unwrap().generation.0, 1);
    assert_eq!(cluster.mknod(ROOT, "x", Kind::Directory, 0), Err(Status::Invalid));
    assert_eq!(cluster.mknod(ROOT, "x", Kind::Datafile, 0), Err(Status::Invalid));
}

#[test]
fn the_last_unlink_removes_all_an_object_has() {
    let cluster = Cluster::new(&[ALL]);
    let file = cluster.create(ROOT, "a").unwrap().handle;
    cluster.write(file, b"data");
    let set = Op::Setxattr {
        object: file,
        name: b"user.x"[..].into(),
        value: b"y"[..].into(),
        create: false,
        replace: false,
    };
    cluster.op(ServerId(0), set).unwrap();
    let removed = Answer::Removed { handle: file, kind: Kind::File, orphaned: false };
    assert_eq!(cluster.unlink(ROOT, "a"), Ok(removed));
    assert_eq!(cluster.attr(file), Err(Status::Stale));
    assert_eq!(cluster.unlink(ROOT, "a"), Err(Status::NotFound));
    assert_eq!(cluster.rows(Table::Inode).len(), 1);
    for table in [Table::Entry, Table::Xattr, Table::Orphan, Table::Reap] {
        assert_eq!(cluster.rows(table), [], "{table:?}");
    }
    assert_eq!(cluster.op(ServerId(0), Op::Streamstat { stream: file }), Err(Status::Stale));
}

#[test]
fn an_object_with_further_names_stays_with_a_new_ctime() {
    let cluster = Cluster::new(&[ALL, ALL]);
    let (_, dir) = cluster.mkdir_on(1, ROOT);
    let file = cluster.create(ROOT, "a").unwrap().handle;
    for (dir, other) in [(ROOT, "b"), (dir.handle, "c")] {
        let linked = cluster.link(file, dir, other).unwrap();
        assert_eq!(cluster.attr(file), Ok(linked.clone()));
        assert_eq!(linked.ctime, cluster.now());
    }
    assert_eq!(cluster.attr(file).unwrap().nlink, 3);
    cluster.unlink(dir.handle, "c").unwrap();
    let attr = cluster.attr(file).unwrap();
    assert_eq!((attr.nlink, attr.ctime), (2, cluster.now()));
    cluster.unlink(ROOT, "a").unwrap();
    cluster.unlink(ROOT, "b").unwrap();
    assert_eq!(cluster.attr(file), Err(Status::Stale));
}

#[test]
fn a_link_needs_a_free_name_and_an_object_that_may_have_more() {
    let cluster = Cluster::new(&[ALL, ALL]);
    let (subdir, dir) = cluster.mkdir_on(1, ROOT);
    let file = cluster.create(ROOT, "a").unwrap().handle;
    assert_eq!(cluster.link(file, ROOT, "a"), Err(Status::Exists));
    assert_eq!(cluster.link(dir.handle, ROOT, &subdir), Err(Status::Exists));
    assert_eq!(cluster.link(dir.handle, ROOT, "b"), Err(Status::NotPermitted));
    assert_eq!(cluster.link(ROOT, dir.handle, "b"), Err(Status::NotPermitted));
    assert_eq!(cluster.link(Handle::new(ServerId(1), 9999), ROOT, "b"), Err(Status::Stale));
    assert_eq!(cluster.link(file, file, "b"), Err(Status::NotDirectory));
    cluster.unlink_held(ROOT, "a", Held { any: true, ..Held::default() }).unwrap();
    assert_eq!(cluster.link(file, ROOT, "b"), Err(Status::NotFound));
}

#[test]
fn links_end_at_the_limit() {
    let cluster = Cluster::new(&[ALL, ALL]);
    let (_, dir) = cluster.mkdir_on(1, ROOT);
    let file = cluster.create(ROOT, "a").unwrap().handle;
    let nlink = limits::LINKS_MAX - 1;
    cluster.prepared(&[shoal_proto::Action::LinksSet { object: file, nlink }]);
    cluster.link(file, dir.handle, "b").unwrap();
    assert_eq!(cluster.link(file, dir.handle, "c"), Err(Status::TooManyLinks));
    assert_eq!(cluster.link(file, ROOT, "c"), Err(Status::TooManyLinks));
}

#[test]
fn what_its_client_holds_open_stays_until_released() {
    let cluster = Cluster::new(&[ALL, ALL]);
    let (_, dir) = cluster.mkdir_on(1, ROOT);
    let file = cluster.create(ROOT, "a").unwrap().handle;
    cluster.link(file, dir.handle, "b").unwrap();
    let held = Held { handles: vec![file].into(), any: false };
    let removed = |orphaned| Ok(Answer::Removed { handle: file, kind: Kind::File, orphaned });
    assert_eq!(cluster.unlink_held(ROOT, "a", held.clone()), removed(false));
    cluster.op(ServerId(0), Op::Release { object: file }).unwrap();
    assert_eq!(cluster.unlink_held(dir.handle, "b", held), removed(true));
    let attr = cluster.attr(file).unwrap();
    assert_eq!((attr.nlink, attr.ctime), (0, cluster.now()));
    cluster.write(file, b"still there");
    // Another client cannot reach it, and its release is nothing.
    cluster.client.set(ClientId([2; 16]));
    let open = Op::Open { object: file, rights: Rights::READ };
    assert_eq!(cluster.op(ServerId(0), open), Err(Status::Stale));
    cluster.op(ServerId(0), Op::Release { object: file }).unwrap();
    assert_eq!(cluster.attr(file).unwrap().nlink, 0);
    cluster.client.set(ClientId([1; 16]));
    cluster.op(ServerId(0), Op::Release { object: file }).unwrap();
    assert_eq!(cluster.attr(file), Err(Status::Stale));
    assert_eq!(cluster.rows(Table::Orphan), []);
    cluster.op(ServerId(0), Op::Release { object: file }).unwrap();
}

#[test]
fn directories_are_removed_by_rmdir_alone_and_only_empty() {
    let cluster = Cluster::new(&[ALL, ALL]);
    for server in 0..2 {
        let (subdir, dir) = cluster.mkdir_on(server, ROOT);
        assert_eq!(cluster.unlink(ROOT, &subdir), Err(Status::IsDirectory));
        cluster.create(dir.handle, "a").unwrap();
        assert_eq!(cluster.rmdir(ROOT, &subdir), Err(Status::NotEmpty));
        assert_eq!(cluster.rmdir(dir.handle, "a"), Err(Status::NotDirectory));
        assert_eq!(cluster.rmdir(dir.handle, "b"), Err(Status::NotFound));
        cluster.unlink(dir.handle, "a").unwrap();
        cluster.rmdir(ROOT, &subdir).unwrap();
        assert_eq!(cluster.attr(dir.handle), Err(Status::Stale));
        assert_eq!(cluster.create(dir.handle, "a"), Err(Status::Stale));
        assert_eq!(cluster.find(ROOT, &subdir), Err(Status::NotFound));
    }
    assert_eq!(cluster.attr(ROOT).unwrap().nlink, 2);
}

#[test]
fn a_group_that_empties_a_directory_may_remove_it() {
    let cluster = Cluster::new(&[ALL]);
    let dir = cluster.mkdir(ROOT, "dir").unwrap().handle;
    cluster.create(dir, "a").unwrap();
    let unlink = Op::Unlink { dir, name: name("a"), held: Held::default() };
    let rmdir = Op::Rmdir { dir: ROOT, name: name("dir") };
    cluster.group(ServerId(0), &[unlink, rmdir]).unwrap();
    assert_eq!(cluster.rows(Table::Inode).len(), 1);
    // And one that fills it may not.
    let dir = cluster.mkdir(ROOT, "dir").unwrap().handle;
    let mknod = Op::Mknod { dir, name: name("a"), owner: OWNER, kind: Kind::Fifo, rdev: 0 };
    let rmdir = Op::Rmdir { dir: ROOT, name: name("dir") };
    let failed = cluster.group(ServerId(0), &[mknod, rmdir]);
    assert_eq!(failed, Err(Status::NotEmpty.into()));
    assert_eq!(cluster.list(dir), []);
}

#[test]
fn a_server_without_data_lays_its_files_out_at_once() {
    let cluster = Cluster::new(&[Roles::METADATA, Roles::DATA, Roles::DATA]);
    let file = cluster.create(ROOT, "a").unwrap();
    let layout = file.layout.clone().unwrap();
    assert_eq!((layout.datafiles.len(), layout.generation.0, file.generation.0), (2, 1, 1));
    assert_eq!(cluster.attr(file.handle), Ok(file.clone()));
    for &datafile in layout.datafiles.iter() {
        let stat = cluster.op(datafile.server(), Op::Streamstat { stream: datafile }).unwrap();
        assert!(
            matches!(stat, Answer::Facts { facts, .. } if facts.generation.0 == 0),
            "it was never touched"
        );
    }
    // Explicit times advance all generations together.
    let set = SetAttr { mtime: Some(shoal_proto::Time(5)), ..SetAttr::default() };
    let after = cluster.setattr(file.handle, set).unwrap();
    assert_eq!((after.mtime.0, after.generation.0), (5, 2));
    assert_eq!(cluster.attr(file.handle), Ok(after));
    for &datafile in layout.datafiles.iter() {
        let stat = cluster.op(datafile.server(), Op::Streamstat { stream: datafile }).unwrap();
        assert!(matches!(stat, Answer::Facts { facts, .. } if facts.generation.0 == 2));
    }
    cluster.unlink(ROOT, "a").unwrap();
    assert_eq!(cluster.rows(Table::Reap).len(), 2);
}

#[test]
fn an_operation_on_another_servers_object_says_so() {
    let cluster = Cluster::new(&[ALL, ALL]);
    let (_, dir) = cluster.mkdir_on(1, ROOT);
    let op = Op::Getattr { object: dir.handle };
    assert_eq!(cluster.op(ServerId(0), op), Err(Status::WrongServer));
}
