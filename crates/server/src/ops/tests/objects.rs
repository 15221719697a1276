//! Tests of attributes, opens, and extended attributes.

use super::cluster::{ALL, Cluster};
use bytes::Bytes;
use futures_util::FutureExt;
use shoal_proto::{Answer, Handle, Kind, Op, Rights, ServerId, SetAttr, Status, Time, limits};

const ROOT: Handle = Handle::ROOT;
const HERE: ServerId = ServerId(0);

fn set(cluster: &Cluster, object: Handle, name: &[u8], value: &[u8]) -> Result<Answer, Status> {
    set_as(cluster, object, name, value, false, false)
}

fn set_as(
    cluster: &Cluster,
    object: Handle,
    name: &[u8],
    value: &[u8],
    create: bool,
    replace: bool,
) -> Result<Answer, Status> {
    let (name, value) = (name.into(), value.into());
    cluster.op(HERE, Op::Setxattr { object, name, value, create, replace })
}

fn get(cluster: &Cluster, object: Handle, name: &[u8]) -> Result<Vec<u8>, Status> {
    match cluster.op(HERE, Op::Getxattr { object, name: name.into() })? {
        Answer::Bytes { bytes } => Ok(bytes.to_vec()),
        other => panic!("{other:?}"),
    }
}

fn list(cluster: &Cluster, object: Handle) -> Vec<u8> {
    match cluster.op(HERE, Op::Listxattr { object }).unwrap() {
        Answer::Bytes { bytes } => bytes.to_vec(),
        other => panic!("{other:?}"),
    }
}

fn mode(mode: u32) -> SetAttr {
    SetAttr { mode: Some(mode), ..SetAttr::default() }
}

#[test]
fn each_change_of_attributes_sets_ctime_and_nothing_else_unasked() {
    let cluster = Cluster::new(&[ALL]);
    let file = cluster.create(ROOT, "a").unwrap();
    let after = cluster.setattr(file.handle, mode(0o107_640)).unwrap();
    assert_eq!((after.mode, after.ctime, after.mtime), (0o7640, cluster.now(), file.mtime));
    let nothing = cluster.setattr(file.handle, SetAttr::default()).unwrap();
    assert_eq!(nothing, shoal_proto::Attr { ctime: cluster.now(), ..after });
    let given = SetAttr { atime: Some(Time(-5)), ctime: Some(Time(77)), ..SetAttr::default() };
    let after = cluster.setattr(file.handle, given).unwrap();
    assert_eq!((after.atime, after.ctime, after.mtime), (Time(-5), Time(77), file.mtime));
    assert_eq!(after.generation.0, 1, "only an explicit mtime begins a generation");
}

#[test]
fn a_new_owner_takes_privileges_from_files_unless_a_mode_comes_with_it() {
    let cluster = Cluster::new(&[ALL]);
    let file = cluster.create(ROOT, "a").unwrap().handle;
    let owner = SetAttr { uid: Some(5), ..SetAttr::default() };
    let group = SetAttr { gid: Some(6), ..SetAttr::default() };
    for (before, change, after) in [
        (0o6755, owner.clone(), 0o755),
        (0o6755, group.clone(), 0o755),
        // Set-group-id without group-execute is no privilege (it once marked mandatory locks).
        (0o6745, owner.clone(), 0o2745),
        (0o6755, SetAttr { mode: Some(0o6711), ..owner.clone() }, 0o6711),
        (0o6755, SetAttr { kill_privileges: true, ..SetAttr::default() }, 0o755),
    ] {
        cluster.setattr(file, mode(before)).unwrap();
        assert_eq!(cluster.setattr(file, change).unwrap().mode, after);
    }
    let dir = cluster.mkdir(ROOT, "dir").unwrap().handle;
    cluster.setattr(dir, mode(0o6755)).unwrap();
    let after = cluster.setattr(dir, SetAttr { gid: Some(6), ..owner }).unwrap();
    assert_eq!((after.mode, after.uid, after.gid), (0o6755, 5, 6));
}

#[test]
fn an_explicit_mtime_wins_over_older_writes_and_loses_to_newer_ones() {
    let cluster = Cluster::new(&[ALL]);
    let file = cluster.create(ROOT, "a").unwrap().handle;
    cluster.write(file, b"one");
    let written = cluster.now();
    assert_eq!(cluster.attr(file).unwrap().mtime, written);
    let after = cluster.setattr(file, SetAttr { mtime: Some(Time(5)), ..SetAttr::default() }).unwrap();
    assert_eq!((after.mtime, after.ctime, after.size, after.generation.0), (Time(5), cluster.now(), 3, 2));
    assert_eq!(cluster.attr(file), Ok(after));
    cluster.setattr(file, mode(0o600)).unwrap();
    assert_eq!(cluster.attr(file).unwrap().mtime, Time(5));
    cluster.write(file, b"two");
    assert_eq!(cluster.attr(file).unwrap().mtime, cluster.now());
}

#[test]
fn an_append_under_way_while_its_file_is_laid_out_is_not_cut_away() {
    // As a transaction: else laying it out is one turn, and the store refuses the append as one of an older
    // generation.
    let mut cluster = Cluster::new(&[ALL, ALL]);
    cluster.switch(|switches| switches.precreate = false);
    let file = cluster.create(ROOT, "a").unwrap().handle;
    cluster.write(file, b"one");
    let unstuff = [Op::Unstuff { object: file }];
    let begun = cluster.begin(HERE, &unstuff, Bytes::new()).unwrap().1.unwrap();
    // It passed its handler before the transaction's locks were taken, and is done only now.
    let (data, later) = (Bytes::from_static(b"two"), shoal_env::WallTime(cluster.now().0 + 5));
    cluster.servers[0].store.append(file, 1, u64::MAX, data, later).now_or_never().unwrap().unwrap();
    begun.parts.iter().for_each(|(server, actions)| cluster.finish(begun.tx, *server, actions));
    let attr = cluster.attr(file).unwrap();
    assert_eq!((attr.size, attr.mtime, attr.generation.0), (6, Time(later.0), 2));
}

#[test]
fn explicit_times_of_an_unstuffed_file_reach_all_its_datafiles() {
    let cluster = Cluster::new(&[ALL, ALL, ALL]);
    let file = cluster.create(ROOT, "a").unwrap().handle;
    cluster.write(file, b"one");
    let written = cluster.now();
    cluster.op(HERE, Op::Unstuff { object: file }).unwrap();
    let laid = cluster.attr(file).unwrap();
    let layout = laid.layout.clone().unwrap();
    assert_eq!((layout.datafiles.len(), layout.datafiles[0], laid.generation.0), (3, file, 2));
    assert_eq!((laid.mtime, laid.size), (written, 3), "unstuffing is no write");
    let given = SetAttr { mtime: Some(Time(9)), mode: Some(0o640), ..SetAttr::default() };
    let after = cluster.setattr(file, given).unwrap();
    assert_eq!((after.mtime, after.mode, after.generation.0, after.size), (Time(9), 0o640, 3, 3));
    assert_eq!(cluster.attr(file), Ok(after));
    for &stream in layout.datafiles.iter() {
        let Answer::Facts { facts, .. } = cluster.op(stream.server(), Op::Streamstat { stream }).unwrap()
        else {
            panic!()
        };
        assert_eq!((facts.generation.0, facts.written_at), (3, None));
    }
    // The other servers' datafiles are reaped after the file.
    cluster.unlink(ROOT, "a").unwrap();
    assert_eq!(cluster.rows(crate::meta::keys::Table::Reap).len(), 2);
}

#[test]
fn an_open_gives_the_right_that_was_asked_for_and_only_to_data() {
    let cluster = Cluster::new(&[ALL]);
    let open = |object: Handle, rights: Rights| match cluster.op(HERE, Op::Open { object, rights })? {
        Answer::Made { attr, capability, created: false, .. } => Ok((attr.handle, capability)),
        other => panic!("{other:?}"),
    };
    let file = cluster.create(ROOT, "a").unwrap().handle;
    let (found, capability) = open(file, Rights::READ).unwrap();
    assert_eq!((found, capability.unwrap().rights), (file, Rights::READ));
    assert_eq!(open(file, Rights::empty()), Ok((file, None)));
    assert_eq!(open(ROOT, Rights::READ), Ok((ROOT, None)));
    assert_eq!(open(ROOT, Rights::WRITE), Err(Status::IsDirectory));
    let fifo = cluster.mknod(ROOT, "fifo", Kind::Fifo, 0).unwrap().handle;
    assert_eq!(open(fifo, Rights::WRITE), Ok((fifo, None)));
    assert_eq!(open(Handle::new(HERE, 4711), Rights::READ), Err(Status::Stale));
}

#[test]
fn extended_attributes_are_set_got_listed_and_removed() {
    let cluster = Cluster::new(&[ALL]);
    let file = cluster.create(ROOT, "a").unwrap().handle;
    assert_eq!(get(&cluster, file, b"user.a"), Err(Status::NoAttribute));
    assert_eq!(list(&cluster, file), b"");
    set(&cluster, file, b"user.b", b"").unwrap();
    let time = cluster.now();
    assert_eq!(cluster.attr(file).unwrap().ctime, time);
    set(&cluster, file, b"user.a", &[9; limits::XATTR_VALUE_BYTES_MAX]).unwrap();
    set(&cluster, file, b"user.a", b"value").unwrap();
    set(&cluster, file, b"trusted.t", b"1").unwrap();
    assert_eq!(get(&cluster, file, b"user.a").unwrap(), b"value");
    assert_eq!(get(&cluster, file, b"user.b").unwrap(), b"");
    assert_eq!(list(&cluster, file), b"trusted.t\0user.a\0user.b\0");
    // Those of another object are its own.
    let other = cluster.create(ROOT, "b").unwrap().handle;
    assert_eq!(get(&cluster, other, b"user.a"), Err(Status::NoAttribute));
    let remove = |name: &[u8]| cluster.op(HERE, Op::Removexattr { object: file, name: name.into() });
    assert_eq!(remove(b"user.a"), Ok(Answer::Done {}));
    assert_eq!(cluster.attr(file).unwrap().ctime, cluster.now());
    assert_eq!(remove(b"user.a"), Err(Status::NoAttribute));
    assert_eq!(list(&cluster, file), b"trusted.t\0user.b\0");
}

#[test]
fn an_extended_attribute_is_made_or_replaced_as_asked() {
    let cluster = Cluster::new(&[ALL]);
    assert_eq!(set_as(&cluster, ROOT, b"user.a", b"1", false, true), Err(Status::NoAttribute));
    assert!(set_as(&cluster, ROOT, b"user.a", b"1", true, false).is_ok());
    assert_eq!(set_as(&cluster, ROOT, b"user.a", b"2", true, false), Err(Status::Exists));
    assert!(set_as(&cluster, ROOT, b"user.a", b"3", false, true).is_ok());
    assert_eq!(get(&cluster, ROOT, b"user.a").unwrap(), b"3");
    assert_eq!(set(&cluster, ROOT, b"", b"1"), Err(Status::OutOfRange));
    assert_eq!(set(&cluster, ROOT, b"user.\0", b"1"), Err(Status::Invalid));
}

#[test]
fn the_names_of_an_object_never_outgrow_their_list() {
    let cluster = Cluster::new(&[ALL]);
    let long = |n: usize| format!("user.{n:0>249}");
    let count = limits::XATTR_LIST_BYTES_MAX / 255;
    let sets: Vec<Op> = (0..count)
        .map(|n| Op::Setxattr {
            object: ROOT,
            name: long(n).as_bytes().into(),
            value: b"v"[..].into(),
            create: true,
            replace: false,
        })
        .collect();
    cluster.group(HERE, &sets).unwrap();
    assert_eq!(set(&cluster, ROOT, long(count).as_bytes(), b"v"), Err(Status::NoSpace));
    assert_eq!(list(&cluster, ROOT).len(), count * 255);
    set(&cluster, ROOT, long(1).as_bytes(), b"other").unwrap();
}
