//! mkforked: make a forked file with all its subfiles, in one transaction.
//!
//! The forked file is a directory, on the metadata server that the rotation selects, as every directory is.
//! Each subfile is made on its own server, which keeps its entries, its forks and their bytes. The servers of
//! the subfiles are the application's choice (Galley's list of I/O processors), or all able servers in turn,
//! beginning with the server that the file's handle chooses.

use crate::meta::inode::{attr_of, made_in};
use crate::meta::rows::Inode;
use crate::ops::facts::Cost;
use crate::ops::namespace::rmdir;
use crate::ops::{OpFacts, handler, make, when};
use crate::request::ctx::{Ctx, Stopped};
use crate::txn::actions;
use shoal_proto::{
    Action, Answer, ChangeCount, Dist, Handle, Kind, Name, Op, Owner, Rights, Roles, ServerId, ShardEntry,
    Status, Template, limits,
};

/// Bytes of the journal for one subfile: its inode, its entry, and both in the row of a prepared transaction.
const SUBFILE_BYTES: u64 = 1024;

/// The facts of `mkforked`: a directory with subfiles. It costs 2 objects, and 2 for each subfile (its inode
/// and its entry); the journal space grows with the subfiles.
pub const FACTS: OpFacts = OpFacts {
    draws: 1,
    makes_directory: true,
    journal_bytes: when!(Mkforked { subfiles, .. } => SUBFILE_BYTES * u64::from(*subfiles)),
    cost: |op, _| match op {
        Op::Mkforked { subfiles, .. } => Cost::of(2 + 2 * u64::from(*subfiles)),
        _ => Cost::of(0),
    },
    ..OpFacts::new(handler!(|ctx| Mkforked { dir, name, owner, subfiles, servers, replace } => {
        run(ctx, (*dir, name), owner, *subfiles, servers, *replace)
    }))
};

/// Make it. It becomes current.
///
/// # Errors
/// `Invalid` for a number of subfiles or a server that cannot be; `Exists`; with `replace` `NotDirectory` and
/// `NotEmpty`; `NotPermitted` in another forked file, and in or in place of a directory whose layout clients
/// follow; `NotSupported` where files do not begin stuffed.
pub fn run(
    ctx: &mut Ctx<'_>,
    (dir, name): (Handle, &Name),
    owner: &Owner,
    subfiles: u16,
    servers: &[ServerId],
    replace: bool,
) -> Result<Answer, Stopped> {
    let dir = ctx.object(dir)?;
    let (parent, found) = make::looked_up(ctx, dir, name)?;
    let mut plan = Vec::with_capacity(usize::from(subfiles) + 3);
    let replaced = match found {
        None => None,
        Some(_) if !replace => return Err(Stopped::Status(Status::Exists)),
        Some(found) if found.kind != Kind::Directory => return Err(Stopped::Status(Status::NotDirectory)),
        Some(found) => Some(found.handle),
    };
    let in_place = replaced.map(|replaced| ctx.fact_attr(replaced)).transpose()?;
    let has_layout = |dist: Dist| dist.is_of_forks() || dist.is_followed();
    if has_layout(parent.template.dist) || in_place.is_some_and(|attr| attr.template.dist.is_followed()) {
        return Err(Stopped::Status(Status::NotPermitted));
    }
    let servers = servers_of(ctx, subfiles, servers)?;
    let place = ctx.turn_of_directory();
    let file = ctx.draw(place)?;
    ctx.current = Some((file, Rights::empty()));
    let template = Template { dist: Dist::Forked { subfiles }, width: parent.template.width };
    let made = Inode { template, ..made_in(ctx, dir, &parent, Kind::Directory, owner)? };
    let mut attr = attr_of(file, &made, None);
    attr.nlink = 2 + u32::from(subfiles);

    plan.push(Action::EntryPut {
        shard: ctx.identity.id,
        dir,
        name: name.clone(),
        handle: file,
        kind: Kind::Directory,
        expect: replaced,
        subdirs: i32::from(replaced.is_none()),
        time: ctx.now,
    });
    let (first, mut entries) = (file.counter(), Vec::with_capacity(usize::from(subfiles)));
    for index in 0..subfiles {
        let turn = (first + u64::from(index)) % servers.all.len() as u64;
        let at = if servers.is_chosen { usize::from(index) % servers.all.len() } else { turn as usize };
        let handle = ctx.draw(servers.all[at])?;
        let fork = Template { dist: Dist::Fork, width: 1 };
        let subfile = Inode { template: fork, ..made_in(ctx, file, &made, Kind::Directory, owner)? };
        plan.push(Action::ObjectCreate { attr: attr_of(handle, &subfile, None) });
        let name = Name::new(index.to_string().as_bytes()).map_err(|_| Stopped::Status(Status::Invalid))?;
        entries.push(ShardEntry { name, handle, kind: Kind::Directory });
    }
    plan.push(Action::ForkedCreate { attr: attr.clone(), entries: entries.into() });
    if let Some(replaced) = replaced {
        plan.extend(rmdir::removal(ctx, replaced)?);
    }
    actions::carry_out(ctx, plan)?;
    Ok(Answer::Made { attr, capability: None, created: true, count: ChangeCount::NONE })
}

/// The servers of the subfiles.
struct Servers {
    all: Vec<ServerId>,
    /// The request names them.
    is_chosen: bool,
}

fn servers_of(ctx: &Ctx<'_>, subfiles: u16, chosen: &[ServerId]) -> Result<Servers, Stopped> {
    let map = &ctx.identity.map;
    if !(map.switches.stuffing && map.switches.compound) {
        return Err(Stopped::Status(Status::NotSupported));
    }
    let able: Vec<ServerId> = map.with_roles(Roles::METADATA | Roles::DATA).collect();
    let subfiles = usize::from(subfiles);
    let is_possible = (1..=limits::SUBFILES_MAX).contains(&subfiles)
        && chosen.len() <= subfiles
        && chosen.iter().all(|server| able.contains(server));
    if !is_possible || able.is_empty() {
        return Err(Stopped::Status(Status::Invalid));
    }
    let is_chosen = !chosen.is_empty();
    Ok(Servers { all: if is_chosen { chosen.to_vec() } else { able }, is_chosen })
}
