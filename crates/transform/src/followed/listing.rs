//! A listing of a directory, either of the file system below or in a domain. The domain is opened at the
//! first entry.

use super::Followed;
use super::domain::{Domain, Layout};
use crate::composed::ComposedListing;
use crate::container::ContainerListing;
use shoal_proto::{Handle, Status};
use shoal_vfs::{AnyVfs, Listed, Listing, Result, Vfs};
use std::rc::Rc;
use std::time::Duration;

/// A listing of a directory of [`Followed`].
pub struct FollowedListing<B: Vfs> {
    followed: Followed<B>,
    dir: Handle,
    patience: Duration,
    at: At<B>,
}

/// A listing of a directory in a domain.
type Inner<B> = (Rc<Domain<B>>, InnerListing);

enum InnerListing {
    Container(Box<ContainerListing<AnyVfs>>),
    Composed(Box<ComposedListing<AnyVfs>>),
}

enum At<B: Vfs> {
    Plain(B::Listing),
    /// Where it is to begin, or was at the end: it does not keep a domain open there.
    Begins(Option<u64>),
    /// And the place of the last entry.
    Inside(Inner<B>, Option<u64>),
}

impl<B: Vfs> FollowedListing<B> {
    pub(super) fn new(followed: &Followed<B>, dir: Handle, patience: Duration) -> FollowedListing<B> {
        let at = match followed.is_outside(dir) {
            true => At::Plain(followed.0.over.opendir(dir, patience)),
            false => At::Begins(None),
        };
        FollowedListing { followed: followed.clone(), dir, patience, at }
    }

    /// The next entry of a directory outside.
    async fn plain(&mut self, plus: bool) -> Result<Option<Listed>> {
        let At::Plain(listing) = &mut self.at else { return Ok(None) };
        loop {
            let Some(mut listed) = listing.next(plus).await? else { return Ok(None) };
            let is_root = listed.entry.attr.as_ref().is_some_and(|attr| attr.template.dist.is_followed());
            if !is_root {
                return Ok(Some(listed));
            }
            if let Some(attr) = listed.entry.attr.take() {
                let seen = Box::pin(self.followed.learn(attr, Some(&listed.entry.name))).await;
                match seen {
                    Ok(attr) => {
                        listed.entry.handle = attr.handle;
                        listed.entry.kind = attr.kind;
                        listed.entry.attr = Some(attr);
                    }
                    // It is an object that a layout keeps to itself.
                    Err(error) if matches!(error.status, Status::NotFound | Status::Stale) => continue,
                    Err(error) => return Err(error),
                }
            }
            return Ok(Some(listed));
        }
    }

    async fn inside(&mut self, plus: bool) -> Result<Option<Listed>> {
        if let At::Begins(after) = self.at {
            let (dir, patience) = (self.dir, self.patience);
            let (domain, inner) = self.followed.enter(dir).await?;
            let mut listing = match &domain.layout {
                Layout::Container(vfs) => InnerListing::Container(Box::new(vfs.opendir(inner, patience))),
                Layout::Composed(vfs) => InnerListing::Composed(Box::new(vfs.opendir(inner, patience))),
            };
            if let Some(place) = after {
                listing.seek(place);
            }
            self.at = At::Inside((domain, listing), after);
        }
        let At::Inside((domain, listing), last) = &mut self.at else { return Ok(None) };
        let next = match listing {
            InnerListing::Container(listing) => listing.next(plus).await,
            InnerListing::Composed(listing) => listing.next(plus).await,
        };
        let Some(mut listed) = next? else {
            self.at = At::Begins(*last);
            return Ok(None);
        };
        *last = Some(listed.entry.place);
        listed.entry.handle = self.followed.handle(domain, listed.entry.handle);
        let attr = listed.entry.attr.take();
        listed.entry.attr = attr.map(|attr| self.followed.outside(domain, attr));
        Ok(Some(listed))
    }
}

impl InnerListing {
    fn seek(&mut self, place: u64) {
        match self {
            InnerListing::Container(listing) => listing.seek(place),
            InnerListing::Composed(listing) => listing.seek(place),
        }
    }
}

impl<B: Vfs> Listing for FollowedListing<B> {
    async fn next(&mut self, plus: bool) -> Result<Option<Listed>> {
        match &self.at {
            At::Plain(_) => self.plain(plus).await,
            _ => Box::pin(self.inside(plus)).await,
        }
    }

    fn seek(&mut self, place: u64) {
        match &mut self.at {
            At::Plain(listing) => listing.seek(place),
            At::Begins(after) => *after = Some(place),
            At::Inside((_, listing), last) => {
                listing.seek(place);
                *last = Some(place);
            }
        }
    }
}
