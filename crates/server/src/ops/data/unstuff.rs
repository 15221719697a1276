//! unstuff: lay a file out over its datafiles.
//!
//! The pools have these datafiles ready ([`crate::data::pools`]), so the operation is one local
//! transaction. With the switch `precreate` off the operation is a transaction that creates the datafiles
//! on all their servers.
//!
//! The metafile's own stream becomes datafile 0 with its contents, so nothing is copied. The generation
//! advances: a client that does not yet know the layout is refused at its next data request, and fetches the
//! layout. The operation is idempotent: for a laid-out file the reply is its layout. Source: PVFS small
//! files, section III-B.

use crate::data::pools;
use crate::ops::make;
use crate::ops::{OpFacts, handler};
use crate::request::ctx::{Ctx, Stopped};
use crate::txn::actions;
use shoal_proto::{Action, Answer, Dist, Generation, Handle, Kind, Layout, Roles, ServerId, Status, limits};

/// The facts of `unstuff`: a handler. It asks for journal space for the rows of all pools that supply
/// datafiles.
pub const FACTS: OpFacts = OpFacts {
    journal_bytes: |_| make::POOL_ROWS_BYTES,
    ..OpFacts::new(handler!(|ctx| Unstuff { object } => run(ctx, *object)))
};

/// Lay the file out.
pub fn run(ctx: &mut Ctx<'_>, object: Handle) -> Result<Answer, Stopped> {
    let file = ctx.object(object)?;
    let inode = ctx.inode(file)?;
    if inode.kind != Kind::File {
        return Err(Stopped::Status(Status::Invalid));
    }
    let info = ctx.stream(file)?.ok_or(Stopped::Status(Status::Stale))?;
    if let Some(layout) = inode.layout {
        return Ok(Answer::Laid { layout: Layout { generation: Generation(info.generation), ..layout } });
    }
    if inode.template.dist == Dist::Basic || inode.template.dist.is_of_forks() {
        return Err(Stopped::Status(Status::Invalid));
    }
    let (expect, generation) = (Generation(info.generation), Generation(info.generation + 1));
    let (mut datafiles, mut plan) = (vec![file], Vec::new());
    for server in other_servers(ctx, inode.template.width) {
        if ctx.identity.precreates() {
            datafiles.push(pools::take(ctx, server)?);
        } else {
            let datafile = ctx.draw(server)?;
            plan.push(Action::DatafileCreate { datafile, owner: file, generation });
            datafiles.push(datafile);
        }
    }
    let layout = Layout { dist: inode.template.dist, datafiles: datafiles.into(), generation };
    // First the layout, which expects the generation that the advance then replaces.
    plan.push(Action::LayoutSet { object: file, expect, layout: layout.clone(), time: ctx.now });
    let written_at = info.written_at.map(|t| shoal_proto::Time(t.0));
    // The size stays as it is at that moment: bulk data on its way may be written between now and then.
    plan.push(Action::StreamAdvance {
        stream: file,
        owner: file,
        expect,
        generation,
        size: None,
        written_at,
    });
    actions::carry_out(ctx, plan)?;
    Ok(Answer::Laid { layout })
}

/// The data servers of the datafiles after the first: in order from this server on, so that files of
/// different servers begin their rounds at different places.
fn other_servers(ctx: &Ctx<'_>, width: u16) -> Vec<ServerId> {
    let all: Vec<ServerId> = ctx.identity.map.with_roles(Roles::DATA).collect();
    let me = all.iter().position(|&server| server == ctx.identity.id).unwrap_or(0);
    let width = if width == 0 { all.len() } else { usize::from(width) };
    let width = width.clamp(1, all.len().clamp(1, limits::WIDTH_MAX));
    (1..width).map(|step| all[(me + step) % all.len()]).collect()
}
