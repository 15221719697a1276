//! createmeta: make a metafile that has no name yet, for a client that creates files step by step as PVFS
//! does.
//!
//! With the switch `stuffing`, and if this server holds data, the metafile is made with its first strip.
//! Otherwise, with the switch `precreate`, the metafile gets datafiles from the pools. Both forms are the
//! augmented create of the PVFS small-files paper. Otherwise the client makes the datafiles. The metafile's
//! link count is 1 from the start, although it has no entry yet. The row [`New`] contains the client, the
//! directory and the name of the future entry ([`crate::stepwise`]).

use crate::meta::inode::{made_in, root};
use crate::meta::rows::New;
use crate::meta::{keys, placement};
use crate::ops::facts::Cost;
use crate::ops::make;
use crate::ops::namespace::open;
use crate::ops::{OpFacts, handler};
use crate::request::ctx::{Ctx, Stopped};
use shoal_proto::{
    Answer, ClusterMap, Handle, Kind, Name, Op, Owner, Rights, Roles, Status, Template, limits,
};

/// The facts of `createmeta`: a step of `compound = off`. It draws one handle, for the metafile. Its cost
/// depends on the switches.
pub const FACTS: OpFacts = OpFacts {
    is_step: true,
    draws: 1,
    cost,
    ..OpFacts::new(handler!(|ctx| Createmeta { dir, name, owner, open, template } => {
        run(ctx, *dir, name, owner, *open, *template)
    }))
};

/// Make the metafile, and open it. `owner` and `template` already have the values that a file inherits from
/// the directory (group, template).
///
/// # Errors
/// `Invalid` for a template with more than `WIDTH_MAX` datafiles, or with the layout of a container or of a
/// composed directory.
pub fn run(
    ctx: &mut Ctx<'_>,
    dir: Handle,
    name: &Name,
    owner: &Owner,
    rights: Rights,
    template: Template,
) -> Result<Answer, Stopped> {
    if usize::from(template.width) > limits::WIDTH_MAX || template.dist.is_followed() {
        return Err(Stopped::Status(Status::Invalid));
    }
    let handle = ctx.draw(ctx.identity.id)?;
    let parent = root(&Owner { mode: 0, ..*owner }, template, ctx.now);
    let mut inode = made_in(ctx, dir, &parent, Kind::File, owner)?;
    ctx.current = Some((handle, rights));
    if ctx.identity.precreates() && !placement::stuffs(ctx.identity, ctx.identity.id) {
        inode.layout = Some(make::ready_layout(ctx, handle, &inode)?);
    }
    make::object(ctx, handle, &inode)?;
    let new = New { client: ctx.client, place: dir, name: Some(name.clone()) };
    ctx.put(keys::new(handle), &new)?;
    let attr = ctx.attr(handle)?;
    ctx.opened(handle);
    let capability = open::capability(ctx, handle, rights);
    let count = ctx.count_in(&attr);
    Ok(Answer::Made { attr, capability, created: true, count })
}

fn cost(op: &Op, map: &ClusterMap) -> Cost {
    let switches = map.switches;
    match op {
        Op::Createmeta { template, .. } if switches.precreate && !switches.stuffing => {
            let all = map.with_roles(Roles::DATA).count() as u64;
            let taken = if template.width == 0 { all } else { all.min(template.width.into()) };
            Cost::of(2 + taken)
        }
        _ => Cost::of(1 + 2 * u64::from(switches.stuffing)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops;
    use shoal_proto::{CollectionId, Dist, ServerId, ServerInfo, Switches};

    /// Four servers.
    fn map(switches: Switches) -> ClusterMap {
        let server = |id| ServerInfo::new(ServerId(id), Vec::new(), Roles::all());
        ClusterMap {
            fs_id: [0; 16],
            name: "test".into(),
            collection: CollectionId(1),
            epoch: 1,
            template: Template { dist: Dist::Basic, width: 0 },
            switches,
            servers: (0..4).map(server).collect::<Vec<_>>().into(),
            keys: Vec::new().into(),
        }
    }

    #[test]
    fn an_augmented_create_makes_three_objects_and_the_baseline_s_one() {
        let name = Name::new(b"f").expect("a name");
        let owner = Owner { mode: 0o644, uid: 0, gid: 0 };
        let (dir, open, template) = (Handle::ROOT, Rights::WRITE, Template::default());
        let op = Op::Createmeta { dir, name: name.clone(), owner, open, template };
        let cost = |op: &Op, switches| (ops::of(op).cost)(op, &map(switches));
        assert_eq!(cost(&op, Switches::BASELINE), Cost::of(1));
        let precreate = Switches { precreate: true, ..Switches::BASELINE };
        assert_eq!(cost(&op, precreate), Cost::of(2 + 4), "one of each server's pool");
        assert_eq!(cost(&op, Switches { stuffing: true, ..precreate }), Cost::of(3));
        assert_eq!(cost(&Op::Rmdirent { dir, name }, Switches::BASELINE), Cost::removed(1));
        assert_eq!(cost(&Op::Ping {}, Switches::BASELINE), Cost::of(0));
    }
}
